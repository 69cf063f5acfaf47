"""Benchmarks on the command line: flags of ``casspec bench`` and ``compare``, and their output."""
