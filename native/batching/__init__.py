"""Decode several sequences together: their slots, and passes over rows of all of them."""
