"""Parts that decoder, encoder and DMA share."""
