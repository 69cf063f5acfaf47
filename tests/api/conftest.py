"""The packed model of the command line's tests."""

from tests.commands.conftest import _cache, _native_library, packed

__all__ = ["_cache", "_native_library", "packed"]
