"""An OpenAI-compatible server for packed models (docs/software/serving.md)."""
