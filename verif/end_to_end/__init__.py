"""The main job, ``make sim``: a real model through the format and the gateware, bit for bit."""
