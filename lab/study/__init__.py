"""Studies of settings: acceptance by setting, a small model, the padding of caches."""
