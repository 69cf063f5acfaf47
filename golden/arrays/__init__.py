"""The codec in numpy, vectorized over segments (docs/format.md, sections 3 to 7)."""
