"""Low-rank projections of a model after the HyperTensor papers, and drafts by table alone."""
