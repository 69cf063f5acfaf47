"""Rates and energy of decoder and encoder, from simulations of the gateware."""
