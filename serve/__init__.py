"""An OpenAI-compatible server for packed models (docs/serving.md)."""
