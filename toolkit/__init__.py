"""What all commands share: options, errors, programs, tables, plots, documents, workers."""
