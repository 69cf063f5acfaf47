"""Measure the effect of compression on a model's predictions (the paper's Table III, scaled
down).
"""
