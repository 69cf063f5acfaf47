"""cocotb suites of the blocks of the decoder; ``tests/verif/test_blocks.py`` runs them."""
