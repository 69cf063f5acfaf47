"""Measure servers under load, over HTTP, and compare their replies."""
