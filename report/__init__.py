"""Format results with the standard library alone: tables and generated blocks of documents."""
