"""The small models of the tests of models."""

from tests.model.conftest import llama, own_llama

__all__ = ["llama", "own_llama"]
