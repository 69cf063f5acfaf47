"""The encoder's parts: its front end, its back end, and what travels between them."""
