"""The names that ``cassandra_spec`` promises, and their documents."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import cassandra_spec as cassandra
from cassandra_spec.api.opening import Loading
from cassandra_spec.api.packing import PackFields
from cassandra_spec.api.replies import Chat, Model, ReplyOptions, Stream, open_model, reply_settings
from cassandra_spec.model.packing.plan import FIELDS
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.encode.types import EncoderConfig

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "software" / "python.md").read_text(encoding="utf-8")

STAY = """
CassandraError Chat DecodeError DraftCache FileError Format GatewareOptions KeyValues Levels Model
PackFields Packed Reply ReplyOptions Stream Work __version__ decode_draft decode_target encode
export_gateware open pack
"""
MEMBERS = {
    Model: "backend begin chat close loading replies reply settings_of stream verify",
    Stream: "close reply text",
    Chat: "figures messages say stream",
}


def test_the_list_of_names_only_grows() -> None:
    assert set(STAY.split()) <= set(cassandra.__all__)
    for kind, names in MEMBERS.items():
        for name in names.split():
            assert hasattr(kind, name) or name in kind.__annotations__


def test_every_name_is_there_and_in_the_page() -> None:
    for name in cassandra.__all__:
        assert getattr(cassandra, name) is not None
        assert name == "__version__" or re.search(rf"`(cassandra\.)?{name}\b", PAGE), name
    assert dir(cassandra) == sorted(cassandra.__all__)


def test_every_option_of_a_reply_and_of_opening_is_in_the_page() -> None:
    options = {*ReplyOptions.__annotations__, *inspect.signature(open_model).parameters} - {
        "packed"
    }
    assert {name for name in options if f"`{name}`" not in PAGE} == set()


def test_options_have_one_list_of_names() -> None:
    known = set(inspect.signature(reply_settings).parameters) - {"settings"}
    assert set(ReplyOptions.__annotations__) == known
    assert set(PackFields.__annotations__) == set(FIELDS)
    assert set(Loading.__dataclass_fields__) <= set(inspect.signature(open_model).parameters)


def test_gateware_has_the_options_of_its_configurations() -> None:
    kinds = (DecoderConfig, DmaConfig, EncoderConfig, StoreConfig)
    fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    given = {"decoder", "encoder", *inspect.signature(cassandra.export_gateware).parameters}
    assert set(cassandra.GatewareOptions.__annotations__) == fields - given


def test_defaults_of_opening_are_those_of_its_options() -> None:
    for name, parameter in inspect.signature(open_model).parameters.items():
        if name in Loading.__dataclass_fields__:
            assert parameter.default == getattr(Loading(), name)


def test_an_unknown_name_is_refused_as_python_does() -> None:
    assert not hasattr(cassandra, "generate")


def test_public_functions_have_types_and_docstrings() -> None:
    for name in set(cassandra.__all__) - {"__version__"}:
        public = getattr(cassandra, name)
        assert inspect.getdoc(public), name
        if inspect.isfunction(public):
            signature = inspect.signature(public)
            assert signature.return_annotation is not signature.empty, name
            kinds = [each.annotation for each in signature.parameters.values()]
            assert signature.empty not in kinds, name


def test_the_package_imports_nothing_before_it_is_asked() -> None:
    program = "import sys, cassandra_spec; print(*[m for m in sys.modules if 'cassandra' in m])"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.split() == ["cassandra_spec"]
