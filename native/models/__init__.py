"""Models that the native engine runs: what their configs say, and their tensors in its memory."""
