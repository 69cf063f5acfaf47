"""Packed models as safetensors files (docs/format.md, section 8).

This is the one package that knows safetensors. The safetensors library checks every header that is
read (its own rules: whole file covered, no holes, sizes that fit dtype and shape). Where bytes lie
is then read from the header here, because the library offers no access without a framework's dtypes
(numpy has no BF16) and no way to write a file whose tensors are not all in memory.
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
