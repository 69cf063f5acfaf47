"""How results are shown, with the standard library alone: tables and blocks of documents."""
