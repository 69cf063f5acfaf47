"""Text of prompts and replies: chat templates, stop strings and grammars; nothing about drafts."""
