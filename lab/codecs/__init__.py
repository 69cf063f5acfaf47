"""Benchmarks of codecs: the native one beside others, and packing."""
