"""Check that two ways to decode give the same replies."""
