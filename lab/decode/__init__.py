"""Benchmarks of decoding: rivals, contexts, shapes of larger models, files and memory."""
