"""The wheel and source archive: one package with its data, which imports little by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cassandra_spec.toolkit.running import EXTRAS
from tests.house.test_layers import modules, needed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "cassandra_spec"
SUFFIXES = {
    *(".py", ".cpp", ".h", ".js", ".css", ".json", ".md", ".toml", ".txt", ".typed"),
    *(".v", ".vh", ".vlt"),
}
TOOLS = (
    *("golden/oracle/", "model/weights/subset.py", "native/tools/"),
    *("toolkit/documents.py", "toolkit/overview.py", "toolkit/programs.py"),
)
"""Folders and files that tests and developers alone need, which the wheel has not."""
FOR_CHECKOUTS = {
    ("api.opening", "verif.decoder.bulk"),
    ("api.opening", "verif.encoder.bulk"),
    ("bench.report", "toolkit.documents"),
}
"""Imports of modules that the wheel has not, by functions that a checkout alone calls."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with wheel and source archive."""
    out = tmp_path_factory.mktemp("archives")
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def archives(built: Path) -> dict[str, set[str]]:
    """Return the files of wheel and source archive, relative to the folder of their contents."""
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        members = archive.getmembers()
    assert all(member.isfile() for member in members)  # links would lead out of the archive
    return {
        "wheel": set(zipfile.ZipFile(wheel).namelist()),
        "sdist": {member.name.split("/", 1)[1] for member in members},
    }


def in_checkout() -> set[str]:
    """Return the tracked files below the package's links, as the package names them."""
    rooms = sorted(path.name for path in (ROOT / PACKAGE).iterdir() if path.is_symlink())
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *rooms]
    run = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    found = [name for name in run.stdout.splitlines() if (ROOT / name).is_file()]
    own = [path for path in (ROOT / PACKAGE).iterdir() if path.is_file()]
    return {f"{PACKAGE}/{name}" for name in found} | {f"{PACKAGE}/{path.name}" for path in own}


def of_product(name: str) -> bool:
    """Return whether the wheel has a file of the package."""
    path = name.removeprefix(f"{PACKAGE}/")
    room, *rest = path.split("/")
    if room == "synth":
        return rest[0] in {"__init__.py", "export.py", "handoff.py", "interface"}
    return room not in {"lab", "verif"} and not path.startswith(TOOLS)


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_an_archive_has_all_files_of_the_package(
    archives: dict[str, set[str]], archive: str
) -> None:
    inside = {name for name in archives[archive] if name.startswith(f"{PACKAGE}/")}
    assert inside == {name for name in in_checkout() if archive == "sdist" or of_product(name)}
    assert {f"{PACKAGE}/py.typed", f"{PACKAGE}/golden/format.py"} <= inside
    assert {Path(name).suffix for name in inside} <= SUFFIXES
    assert {".cpp", ".h", ".json", ".txt"} <= {Path(name).suffix for name in inside}


def test_the_wheel_has_one_package_and_no_tests(archives: dict[str, set[str]]) -> None:
    tops = {name.split("/")[0] for name in archives["wheel"]}
    assert {top for top in tops if not top.endswith(".dist-info")} == {PACKAGE}
    assert len(tops) == 2
    names = {Path(name).name for name in archives["wheel"]}
    assert not [name for name in names if name.startswith("test_") or name == "conftest.py"]


def test_the_wheel_has_the_product_s_commands(built: Path, tmp_path: Path) -> None:
    """Every module is imported or left alone, no command of a checkout is listed."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)

    def casspec(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", f"{PACKAGE}.commands", *words]
        env = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    listed = casspec("--help")
    commands = set(re.findall(r"^    ([a-z-]+)(?: |$)", listed.stdout, re.MULTILINE))
    assert {"pack", "generate", "serve", "tune", "bench", "conform"} <= commands
    assert not {"compare", "system", "train-exits"} & commands
    benchmarks = re.findall(r"^    ([a-z-]+)  ", casspec("bench", "--help").stdout, re.MULTILINE)
    assert benchmarks == ["decode", "kernels"]
    for words in (("compare", "packed"), ("bench", "levels", "packed")):
        unknown = casspec(*words)
        assert unknown.returncode == 2
        assert unknown.stderr.count("\n") == 1
    options = casspec("bench", "decode", "--help").stdout
    assert "--contenders" in options
    assert not re.findall("llama|--beside|--shape|--document", options)
    refused = casspec("generate", str(tmp_path), "--prompt", "a", "--codec", "rtl")
    assert refused.returncode == 2
    assert refused.stderr.startswith("casspec: error: codec must be auto or golden")
    assert refused.stderr.count("\n") == 1


def test_modules_of_the_wheel_import_none_that_it_lacks() -> None:
    known = {module: path for path, module in modules()}
    wheel = {m for m, path in known.items() if of_product(path.relative_to(ROOT).as_posix())}
    found = {
        (module.removeprefix(f"{PACKAGE}."), name.removeprefix(f"{PACKAGE}."))
        for module in wheel
        for name in needed(known[module].read_text(encoding="utf-8"), known) - wheel
    }
    assert found == FOR_CHECKOUTS


def without(extras: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python in which the modules of these extras cannot be imported."""
    hidden = [module for module, extra in EXTRAS.items() if extra in extras]
    hide = f"import sys; sys.modules.update(dict.fromkeys({hidden}))"
    return subprocess.run(
        [sys.executable, "-c", f"{hide}\n{code}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("extras", "modules"),
    [
        (
            {"runtime", "hardware", "plots"},
            "golden, golden.file, native.library, lab.system.device, commands.arguments",
        ),
        ({"hardware", "plots"}, "model.packing.packer"),
        ({"runtime", "plots"}, "rtl.decoder, rtl.encoder, synth.export, verif.tools.runner"),
    ],
)
def test_a_room_imports_without_the_extras_of_others(extras: set[str], modules: str) -> None:
    names = [f"{PACKAGE}.{name}" for name in modules.split(", ")]
    run = without(extras, f"import {', '.join(names)}")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (["pack", "smollm2", "OUT"], "tqdm", "runtime"),
        (["rtl", "--out", "OUT"], "amaranth", "hardware"),
        (["system", "reproduce", "--out", "OUT"], "matplotlib", "plots"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    tmp_path: Path, arguments: list[str], module: str, extra: str
) -> None:
    given = [str(tmp_path / "out") if each == "OUT" else each for each in arguments]
    code = f"from {PACKAGE}.commands.__main__ import main\nsys.exit(main({given}))"
    run = without({extra}, code)
    assert run.returncode == 2, run.stderr
    wanted = f"casspec: error: {module} is missing: pip install 'cassandra-spec[{extra}]'\n"
    assert run.stderr == wanted
