"""Parts that all commands share: options, errors, tables, plots, documents, workers."""
