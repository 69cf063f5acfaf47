"""The wheel and source archive: one package with its data, which imports little by itself."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cassandra_spec.toolkit.running import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "cassandra_spec"
SUFFIXES = {
    *(".py", ".cpp", ".h", ".js", ".css", ".json", ".md", ".toml", ".txt", ".typed"),
    *(".v", ".vh", ".vlt"),
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the files of wheel and source archive, relative to the folder of their contents."""
    out = tmp_path_factory.mktemp("archives")
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
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


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_an_archive_has_all_files_of_the_package(
    archives: dict[str, set[str]], archive: str
) -> None:
    inside = {name for name in archives[archive] if name.startswith(f"{PACKAGE}/")}
    assert inside == in_checkout()
    assert {f"{PACKAGE}/py.typed", f"{PACKAGE}/golden/format.py"} <= inside
    assert {Path(name).suffix for name in inside} <= SUFFIXES
    assert {".cpp", ".h", ".json", ".toml", ".txt"} <= {Path(name).suffix for name in inside}


def test_the_wheel_has_one_package_and_no_tests(archives: dict[str, set[str]]) -> None:
    tops = {name.split("/")[0] for name in archives["wheel"]}
    assert {top for top in tops if not top.endswith(".dist-info")} == {PACKAGE}
    assert len(tops) == 2
    names = {Path(name).name for name in archives["wheel"]}
    assert not [name for name in names if name.startswith("test_") or name == "conftest.py"]


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
            "golden, golden.file, native.library, system.device, commands.arguments",
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
