"""Mark a packed directory for transformers: the weights are packed, and this project reads them.

With :mod:`cassandra_spec.model.huggingface` imported, ``from_pretrained`` loads such a directory.
Without it, transformers only warns of an unknown quantisation method, and would leave the weights
random. So ``transformers_weights``, which normally names a file, has a sentence: transformers
refuses the model and quotes it. With ``trust_remote_code=True`` transformers runs two files of the
directory, which only import that module. This project runs neither file, and never copies them from
a directory: it writes them.
"""

from __future__ import annotations

import json
from pathlib import Path

from cassandra_spec.golden.config_fields import PACKED_MARK
from cassandra_spec.golden.model_config import read_json

METHOD = str(PACKED_MARK["quant_method"])
"""``quant_method`` of packed directories."""

_REFUSAL = "the weights are packed, import cassandra_spec.model.huggingface before from_pretrained"
_ENTRIES = {
    "quantization_config": PACKED_MARK,
    "transformers_weights": _REFUSAL,
    "auto_map": {"AutoConfig": "configuration_cassandra.PackedConfig"},
}
_CODE = {"configuration_cassandra.py": "PackedConfig", "custom_generate/generate.py": "generate"}
"""Files that transformers runs with ``trust_remote_code=True``, and the name that it asks for."""
_TEXT = """\
# For transformers, with trust_remote_code=True. Needs: pip install 'cassandra-spec[runtime]'
from cassandra_spec.model.huggingface import {name}  # noqa: F401
"""


def mark_packed(folder: Path) -> None:
    """Say in a directory's config.json that its weights are packed, and write the code."""
    path = folder / "config.json"
    _write(path, read_json(path) | _ENTRIES)
    write_code(folder)


def write_code(folder: Path) -> None:
    """Write the files that transformers runs with ``trust_remote_code=True``."""
    for file, name in _CODE.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(_TEXT.format(name=name), encoding="utf-8")


def unmark(folder: Path) -> None:
    """Remove from a directory's config.json what :func:`mark_packed` has added."""
    path = folder / "config.json"
    config = read_json(path)
    ours = {name for name, value in _ENTRIES.items() if config.get(name) == value}
    left = {name: value for name, value in config.items() if name not in ours}
    if left != config:
        _write(path, left)


def _write(path: Path, config: dict[str, object]) -> None:
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
