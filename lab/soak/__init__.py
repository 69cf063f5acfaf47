"""The regression, ``make soak`` and ``make regression``: speculative replies are plain ones."""
