"""Programs that ask a server with clients of others, in an environment of their own."""
