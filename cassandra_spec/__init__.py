"""Cassandra: a format, a codec, gateware and a runtime for self-speculative decoding.

The packages are links to the top-level folders of the checkout; a wheel has them inside.
"""

__all__ = ["__version__"]

__version__ = "0.3.0"
