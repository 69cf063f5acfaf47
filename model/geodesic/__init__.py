"""Low-rank projections of a model, after the HyperTensor papers: attention, keys and values."""
