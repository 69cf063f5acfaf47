"""Tools for the C++ sources: lint and sanitizers."""
