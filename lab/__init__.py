"""The laboratory: result pages, and other papers' methods and figures; not in the wheel."""
