"""The catalogue of mutations: each changes the gateware in one place, and names real checks."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal import prover
from cassandra_spec.verif.formal.registry import claims
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.mutation import trial
from cassandra_spec.verif.mutation.__main__ import main, table
from cassandra_spec.verif.mutation.catalogue import MUTATIONS, ROOT, Mutation, mutations
from cassandra_spec.verif.mutation.check import file_of, module_of, passes
from cassandra_spec.verif.mutation.trial import (
    SETTINGS,
    TREE,
    Result,
    digest_of,
    sources_of,
    tried,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_its_file_in_one_place(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    changed = mutation.applied(text)
    if mutation.file.endswith(".py"):
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    else:
        assert changed.split() != text.split()


def test_names_are_unique() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_the_checks_exist() -> None:
    names = {claim.name for claim in claims()}
    for mutation in MUTATIONS:
        for check in mutation.checks:
            kind, _, name = check.partition(":")
            if kind == "claim":
                assert name in names
            elif kind == "test":
                file_of(name.partition("/")[0])
            else:
                assert kind in ("sim", "suite")
                module = importlib.import_module(module_of(name.partition("/")[0]))
                assert callable(module.design)
                assert "dma" not in name or isinstance(module.design(), Ruled), name


def test_a_suite_that_does_not_exist_is_named() -> None:
    with pytest.raises(CassandraError, match="not 'no_such_suite'"):
        module_of("no_such_suite")
    with pytest.raises(CassandraError, match=r"not 'rtl\.no_such_test'"):
        file_of("rtl.no_such_test")


def test_patterns_choose_and_wrong_ones_are_refused() -> None:
    assert {m.file for m in mutations(["shifter.*"])} == {"rtl/common/shifter.py"}
    assert main(["no_such_fault"]) == 2
    with pytest.raises(CassandraError, match="occur once"):
        MUTATIONS[0].applied("")


def test_the_table_names_survivors() -> None:
    results = [
        Result(name="a.b", caught_by="claim:c", seconds=1.2, digest=""),
        Result(name="a.c", caught_by="", seconds=3.0, digest=""),
    ]
    assert [line.split() for line in table(results).splitlines()[2:]] == [
        ["a.b", "claim:c", "1"],
        ["a.c", "NOTHING", "3"],
    ]


def test_the_digest_covers_the_sources_of_the_checks(tmp_path: Path) -> None:
    def digest(name: str, *changed: str) -> str:
        root = tmp_path / name
        for part in TREE:
            (root / part).mkdir(parents=True)
            (root / part / "it.py").write_text(str(part in changed))
        (root / SETTINGS).write_text(str(SETTINGS in changed))
        return digest_of(MUTATIONS[0], sources_of(root))

    same = digest("plain")
    assert digest("again") == same
    assert all(digest(f"no {part}", part) != same for part in (*TREE, SETTINGS))
    assert digest_of(MUTATIONS[0], "") != digest_of(MUTATIONS[1], "")


@pytest.mark.skipif(
    bool(prover.missing_tools()), reason="Yosys is not on PATH (Debian: apt install yosys)"
)
def test_a_fault_is_found_and_what_is_known_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (fault,) = mutations(["networks.compact_by_the_wrong_start"])
    assert main([fault.name, "--out", str(tmp_path)]) == 0
    assert "claim:networks.compact.8" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "results.json").read_text())
    assert (row["name"], row["caught_by"]) == (fault.name, "claim:networks.compact.8")
    monkeypatch.setattr(trial, "tried", None)
    assert main([fault.name, "--out", str(tmp_path)]) == 0
    command = (sys.executable, "-m", "cassandra_spec.verif.mutation", fault.name, "--jobs", "2")
    ended = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, fault.name in ended.stdout) == (0, True), ended.stderr


@pytest.mark.skipif(
    bool(prover.missing_tools()), reason="Yosys is not on PATH (Debian: apt install yosys)"
)
def test_a_change_that_nothing_notices_survives(tmp_path: Path) -> None:
    harmless = Mutation(
        name="networks.harmless",
        file="rtl/common/networks.py",
        old='f"{name}_c{half}_{base}_{out}_{place}"',
        new='f"{name}_d{half}_{base}_{out}_{place}"',
        checks=("claim:networks.compact.8",),
    )
    assert tried(harmless, tmp_path / "it").caught_by == ""


def test_tests_that_cannot_run_find_nothing(tmp_path: Path) -> None:
    assert passes("test:rtl.test_config/zero_counters", tmp_path)
    with pytest.raises(CassandraError, match=r"test_config\.py must run"):
        passes("test:rtl.test_config/no_such_test", tmp_path)


def test_a_check_that_always_fails_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (mutation,) = mutations(["zero_counter.run_too_long"])
    monkeypatch.setattr(trial, "_passes", lambda *_: False)
    trial._sound.cache_clear()
    with pytest.raises(CassandraError, match=r"chunk must pass without a fault"):
        tried(mutation, tmp_path / "it")
    trial._sound.cache_clear()
