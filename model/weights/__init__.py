"""Read weights from safetensors directories, GGUF files and packed models."""
