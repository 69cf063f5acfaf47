"""Measure structured output: extraction prompts, and tokens per verification."""
