"""How results are shown: tables for terminals and Markdown, generated blocks of documents."""
