"""The decoder as a peripheral: registers, a read master and one or more decoders."""
