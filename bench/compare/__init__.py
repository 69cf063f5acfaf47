"""All draft methods on the same prompts (docs/drafters.md)."""
