"""Models of the native engine: their configs, and their tensors in its memory."""
