"""Packed models as safetensors files (docs/format.md, section 8).

This is the only package that imports safetensors. The safetensors library checks every header that
is read (whole file covered, no holes, sizes that fit dtype and shape). The offsets are then read
from the header here, because the library only returns tensors in a framework's dtypes (numpy has no
BF16) and cannot write a file whose tensors are not all in memory.
"""

from cassandra_spec.golden.file.description import PackedTensor, RawTensor
from cassandra_spec.golden.file.reader import PackedFile, SafetensorsFile
from cassandra_spec.golden.file.writer import Writer, sync_directory

__all__ = [
    "PackedFile",
    "PackedTensor",
    "RawTensor",
    "SafetensorsFile",
    "Writer",
    "sync_directory",
]
