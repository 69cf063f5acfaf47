"""Whole models into the format and back: calibration, masks, plans, the packer."""
