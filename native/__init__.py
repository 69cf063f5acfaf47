"""Native code: the codec and the decoding engine in C++, compiled at first use (native.md).

Importing this package neither compiles nor loads the library. Without a compiler the import
succeeds, and functions that need the library raise :class:`NativeError`.
"""

from cassandra_spec.native.build import NativeError
from cassandra_spec.native.library import ISAS, isa, load, set_isa

__all__ = ["ISAS", "NativeError", "isa", "load", "set_isa"]
