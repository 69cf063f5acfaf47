"""Verilog export: whole files, names that tools can use, and ports as described."""

import json
import re

import pytest

from golden import CassandraError
from rtl.command import DecoderConfig
from synth import export as exporter

CONFIG = DecoderConfig(lanes=8, schemes=("mx",))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("rtl")
    return exporter.export(out, CONFIG)


def test_a_configuration_is_four_files(exported):
    name = CONFIG.module_name
    assert exported.name == f"{name}.v"
    assert {path.name for path in exported.parent.iterdir()} == {
        f"{name}{suffix}" for suffix in (".v", ".f", ".core", ".ports.json")
    }


def test_the_file_list_and_the_core_name_the_sources_that_are_there(exported):
    listed = exported.with_suffix(".f").read_text().split()
    core = exported.with_suffix(".core").read_text()
    assert all((exported.parent / name).is_file() for name in listed)
    assert core.startswith("CAPI=2:\n")
    assert f"- {exported.name}" in core
    assert f"toplevel: {CONFIG.module_name}" in core


def test_the_port_list_is_that_of_the_module(exported):
    text = exported.read_text()
    top = text[text.index(f"module {CONFIG.module_name}(") :]
    declared = {
        name: (direction, int(high or 0) + 1)
        for direction, high, name in re.findall(
            r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", top[: top.index("endmodule")], re.M
        )
    }
    ports = json.loads(exported.with_suffix(".ports.json").read_text())
    assert {p["name"]: (p["direction"], p["width"]) for p in ports} == declared
    assert not [name for name in declared if "__" in name or "$" in name]


def test_defaults_have_distinct_names_and_all_lane_counts():
    names = [config.module_name for config in exporter.DEFAULT_CONFIGS]
    assert len(set(names)) == len(names)
    assert {config.lanes for config in exporter.DEFAULT_CONFIGS} == {8, 16, 32}


def test_flags_choose_one_configuration(tmp_path, capsys):
    assert exporter.main(["--out", str(tmp_path), "--lanes", "8", "--schemes", "exact"]) == 0
    expected = DecoderConfig(lanes=8, schemes=("exact",)).module_name
    assert capsys.readouterr().out.strip().endswith(f"{expected}.v")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(CassandraError, match="out must be a folder that can be written, not "):
        exporter.export(blocked, CONFIG)


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(exporter.Path, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        exporter.export(tmp_path, CONFIG)
    assert list(tmp_path.iterdir()) == []
