"""The laboratory: other papers' draft methods and figures, and studies; not in the wheel."""
