"""cocotb suites of the decoder's blocks; ``tests/verif/test_blocks.py`` runs them."""
