"""The small models of the tests of models, and a cache of their own."""

from tests.commands.conftest import _cache, _native_library
from tests.model.conftest import llama, own_llama

__all__ = ["_cache", "_native_library", "llama", "own_llama"]
