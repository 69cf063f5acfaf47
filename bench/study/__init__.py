"""Acceptance of drafts on real text, and the search for the best settings."""
