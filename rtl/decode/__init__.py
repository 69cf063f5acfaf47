"""The decoder's parts: both paths, their blocks, and the exported top."""
