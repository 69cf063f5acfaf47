"""All draft methods on the same prompts (docs/software/drafters.md)."""
