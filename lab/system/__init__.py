"""Estimate decoding speed on a device by a closed-form model, from figures read from files.

Imports no other package of the project. system.md explains the model and its assumptions.
"""
