"""The encoder's parts: its front end, its back end, and the streams between them."""
