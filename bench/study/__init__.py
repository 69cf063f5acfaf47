"""Studies of drafts on real text: acceptance by setting, and the search for the best settings."""
