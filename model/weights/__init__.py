"""Where weights come from: safetensors directories, GGUF files, packed models."""
