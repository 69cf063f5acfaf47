"""Hostile input on purpose: mutated files, directories and flags (``make fuzz``)."""
