"""Benchmarks of drafting: levels, rules of acceptance, the KV cache of drafts, grammars, tables."""
