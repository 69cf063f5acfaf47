"""The decoder's parts: the two paths, their blocks, and the exported top."""
