"""The codec in numpy, many segments at once (docs/format.md, sections 3 to 7)."""
