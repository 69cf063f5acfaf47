"""Language models through the format: sources, packing, unpacking and replies.

Nothing here knows the gateware: where weights are decoded, any :class:`golden.Codec` will do.
"""
