"""Runs a cocotb suite under Verilator through cocotb-test.

:func:`run_suite` turns an Amaranth component (or Verilog sources) into a Verilated program, runs
the cocotb tests of a module in it and returns the result; a failed test raises SuiteError. Only the
ports of the top are visible to cocotb unless ``internals`` is set, because ``--public-flat-rw``,
which cocotb-test passes by default, costs several times the run time.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cocotb
from amaranth.hdl import Elaboratable
from cocotb_test.simulator import Verilator

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.conversion import verilog_of
from cassandra_spec.rtl.decode.top import to_verilog
from cassandra_spec.verif.tools.counting import COUNT_FLAGS, counts_folder, new_counts
from cassandra_spec.verif.tools.locking import exclusive
from cassandra_spec.verif.tools.shared_objects import shared_objects
from cassandra_spec.verif.tools.toolchain import (
    compiler_macros,
    require_fst_headers,
    verilator_binary,
    verilator_environment,
    verilator_version,
)

DEFAULT_SEED = 1
"""Default seed of a suite, without an argument or the variable SEED."""

_LOG_TAIL = 60  # lines of the log in an error
# -O1 is as fast to run as -Os, and faster to build; one file reads its headers once.
_OPTIMISE = ("OPT_FAST=-O1", "OPT_GLOBAL=-O1", "VM_PARALLEL_BUILDS=0")
_SET_BY_COCOTB_TEST = (
    "LIBPYTHON_LOC",
    "PYGPI_PYTHON_BIN",
    "PYTHONPATH",
    "PYTHONHOME",
    "GPI_USERS",
    "COCOTB_TOPLEVEL",
    "COCOTB_TEST_MODULES",
)


class SuiteError(RuntimeError):
    """A suite did not build, did not run to its end, or has failed tests."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """The result of a suite."""

    tests: tuple[str, ...]  # names of the tests that passed
    seed: int  # COCOTB_RANDOM_SEED; the same seed replays the run
    log: Path  # output of Verilator, make and cocotb
    waves: Path | None  # the FST file, if waves were requested


def run_suite(
    design: Elaboratable | Sequence[Path | str],
    module: str,
    toplevel: str,
    *,
    build_dir: Path | str,
    seed: int | None = None,
    waves: bool | None = None,
    testcase: str | None = None,
    extra_env: Mapping[str, str] | None = None,
    internals: bool = False,
    assertions: str = "",
    plusargs: Sequence[str] = (),
) -> SuiteResult:
    """Build ``design`` and run the cocotb tests of ``module`` in it.

    Arguments:
        design: an Amaranth component, or paths of Verilog sources.
        module: importable name of the module with the ``@cocotb.test()`` functions.
        toplevel: name of the top module (an Amaranth component gets it).
        build_dir: folder of this suite only; an unchanged design is not built again.
        seed: random seed of cocotb; None: see :func:`choose_seed`.
        waves: record an FST file, in the folder that the variable WAVES_DIR names, else in
            ``build_dir``; None: if WAVES_DIR names a folder.
        testcase: a regular expression that selects tests by name; None runs all.
        plusargs: arguments of the simulation, such as ``+verilator+noassert``.
        extra_env: environment variables for the tests.
        internals: make every signal of the design visible to cocotb (slow).
        assertions: SystemVerilog that is bound to the design; a failed assertion ends the run.

    Raises SuiteError with the end of the log if a test fails or the suite did not run, and
    CassandraError if Verilator, or a header for waves, is missing.
    """
    build = Path(build_dir).resolve()
    if any(character.isspace() for character in str(build)):
        raise CassandraError(f"build_dir must be a path without spaces (make), not {str(build)!r}")
    build.mkdir(parents=True, exist_ok=True)
    waves = bool(os.environ.get("WAVES_DIR")) if waves is None else waves
    if waves:
        require_fst_headers()
    sources = _sources(design, toplevel, build, internals)
    checks = ["--assert"] if assertions else []
    if assertions:
        write_if_changed(build / "assertions.sv", assertions)
        sources.insert(-1, build / "assertions.sv")
    counted = counts_folder() is not None
    folder = build / ("program" + "_waves" * waves + "_counted" * counted)
    lock = exclusive(build / f"{folder.name}.lock")  # one build at a time in a folder
    with (
        lock,
        _Suite(
            toplevel=toplevel,
            module=module,
            verilog_sources=[str(path) for path in sources],
            compile_args=[*_visibility_args(internals), *checks, *(COUNT_FLAGS if counted else ())],
            sim_build=str(folder),
            seed=choose_seed(seed),
            testcase=testcase,
            plus_args=list(plusargs),
            waves=waves,
            timescale="1ns/1ps",
        ) as suite,
    ):
        fst = _waves_file(build, f"{module}.{toplevel}") if waves else None
        return suite.run_to_end(dict(extra_env or {}), fst)


def choose_seed(seed: int | None = None) -> int:
    """Return the given seed, else the variable SEED (a number, or ``random``), else 1."""
    if seed is not None:
        return seed
    text = os.environ.get("SEED") or str(DEFAULT_SEED)
    if text == "random":
        return random.SystemRandom().randrange(1 << 31)
    if not text.isdecimal():
        raise CassandraError(f"SEED must be a number or 'random', not {text!r}")
    return int(text)


def write_if_changed(path: Path, text: str) -> None:
    """Write ``text`` unless the file has it already, so that make sees no newer source."""
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def _waves_file(build: Path, title: str) -> Path:
    """Return ``title.fst`` in the folder WAVES_DIR, else in ``build``; numbered if it exists."""
    folder = Path(os.environ.get("WAVES_DIR") or build).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    title = title.removeprefix("tests.")
    names = itertools.chain([title], (f"{title}.{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder / f"{name}.fst").exists())


def _sources(
    design: Elaboratable | Sequence[Path | str], toplevel: str, build: Path, internals: bool
) -> list[Path]:
    if isinstance(design, Sequence):
        sources = [Path(path).resolve() for path in design]
    else:
        sources = [build / f"{toplevel}.v"]
        exported = getattr(design, "module_name", None) == toplevel
        text = to_verilog(design) if exported else verilog_of(design, toplevel)
        write_if_changed(sources[0], text)
    if not internals:
        visible = f'`verilator_config\npublic_flat_rw -module "{toplevel}" -port "*"\n'
        write_if_changed(build / "visible.vlt", visible)
        sources.insert(0, build / "visible.vlt")
    return sources


def _visibility_args(internals: bool) -> list[str]:
    return ["--public-flat-rw"] if internals else []


class _Suite(Verilator):
    """cocotb-test's Verilator flow with our Verilator, its own log file and only ports visible."""

    # set by cocotb-test, which has no types
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None

    def __enter__(self) -> _Suite:
        return self

    def __exit__(self, *_: object) -> None:
        # cocotb-test takes these signals over when it is created and never restores them
        signal.signal(signal.SIGINT, self.old_sigint_h)
        signal.signal(signal.SIGTERM, self.old_sigterm_h)

    @property
    def _folder(self) -> Path:
        return Path(self.sim_dir)

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    def run_to_end(self, extra_env: dict[str, str], fst: Path | None) -> SuiteResult:
        """Build, run, and read the results file."""
        self.fst = fst
        results = self._folder / "results.xml"
        results.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        seed = int(self.env["COCOTB_RANDOM_SEED"])
        self._set_environment(extra_env, results)
        print(f"cocotb suite {self.module} on {self.toplevel_module}: SEED={seed}", flush=True)
        translate, make, run = self.build_command()
        self.execute([translate])
        versions = str(verilator_version()), compiler_macros() or ""
        with shared_objects(self._folder, [*self._flags(), *_OPTIMISE, *versions]):
            self.execute([make])
        self.execute([run])
        self._keep_counts()
        passed = self._read(results)
        return SuiteResult(tests=passed, seed=seed, log=self._log, waves=fst)

    def _keep_counts(self) -> None:
        counts = new_counts(Path(self.verilog_sources_flat[-1]))
        if counts is not None:
            (self._folder / "coverage.dat").replace(counts)

    def _set_environment(self, extra_env: Mapping[str, str], results: Path) -> None:
        """Set the commands' environment; cocotb-test's ``set_env`` finds the embedded Python."""
        chosen = dict(self.env)  # seed and filter; set_env would let the caller's variables win
        self.set_env()
        found = {name: self.env[name] for name in _SET_BY_COCOTB_TEST}
        self.env = {**verilator_environment(), **found, **chosen, **extra_env}
        self.env["COCOTB_RESULTS_FILE"] = str(results)
        # Verilator delays writes itself (inertial puts), so cocotb need not do it in Python
        self.env["COCOTB_TRUST_INERTIAL_WRITES"] = "1"

    def build_command(self) -> list[list[str]]:
        """Return the commands that translate, compile and run."""
        program = self._folder / self.toplevel_module
        run = [str(program), *self.plus_args]
        if self.fst:
            run += ["--trace", "--trace-file", str(self.fst)]
        make = ["make", "-j2", "-C", self.sim_dir, "-f", "Vtop.mk", *_OPTIMISE]
        return [self._translate(), make, run]

    def _flags(self) -> list[str]:
        """Return the options that all suites share, except for waves and extra options."""
        libraries = f"-Wl,-rpath,{self.lib_dir} -L{self.lib_dir} -lcocotbvpi_verilator"
        waves = ["--trace-fst", "--trace-structs"] if self.waves else []
        return [
            *[verilator_binary(), "-cc", "--exe", "--vpi", "--prefix", "Vtop"],
            *["--timescale", self.timescale],
            *["-Wno-lint", "-Wno-fatal"],  # `make lint` reports warnings
            *["-LDFLAGS", libraries, *waves, *self.compile_args],
        ]

    def _translate(self) -> list[str]:
        main = Path(cocotb.__file__).parent / "share" / "lib" / "verilator" / "verilator.cpp"
        return [
            *[*self._flags(), "-Mdir", self.sim_dir, "--top-module", self.toplevel_module],
            *["-o", self.toplevel_module, *self.get_parameter_commands(self.parameters)],
            *[str(main), *self.verilog_sources_flat],
        ]

    def execute(self, cmds: list[list[str]]) -> None:
        """Run the commands in turn; write their output to the log."""
        for command in cmds:
            with self._log.open("a") as log:
                log.write(f"$ {' '.join(command)}\n")
                log.flush()
                self.process = subprocess.Popen(
                    command, cwd=self.sim_dir, env=self.env, stdout=log, stderr=subprocess.STDOUT
                )
                code = self.process.wait()
            self.process = None
            if code:
                self._fail(f"{Path(command[0]).name} ended with status {code}")

    def _read(self, results: Path) -> tuple[str, ...]:
        if not results.is_file():
            self._fail("the simulation ended without results")
        cases = list(ET.parse(results).getroot().iter("testcase"))
        failed = [_name(case) for case in cases if _has(case, "failure", "error")]
        if failed:
            self._fail(f"failed: {', '.join(failed)}")
        passed = tuple(_name(case) for case in cases if not _has(case, "skipped"))
        if not passed:
            self._fail("no test ran")
        return passed

    def _fail(self, what: str) -> None:
        tail = self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
        seed = self.env["COCOTB_RANDOM_SEED"]
        head = f"suite {self.module} on {self.toplevel_module} with SEED={seed}: {what}"
        raise SuiteError("\n".join([head, *tail, f"(whole log: {self._log})"]))


def _name(case: Any) -> str:
    return f"{case.get('classname')}.{case.get('name')}"


def _has(case: Any, *tags: str) -> bool:
    return any(case.find(tag) is not None for tag in tags)
