"""Choose tokens from logits: sampling, processors, log-probabilities, verification."""
