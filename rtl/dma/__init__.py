"""Decoder and encoder as peripherals: registers, DMA, and one or more engines."""
