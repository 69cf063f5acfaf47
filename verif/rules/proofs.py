"""Prove the rules for the tops, and reach the situations beside them."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.conversion import verilog_of
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.verif.formal.prover import GATES, Claim, Method, Verdict, decide
from cassandra_spec.verif.formal.store import CONFIG as ENCODER
from cassandra_spec.verif.rules.situations import situations
from cassandra_spec.verif.rules.sva import properties_of, rewrite, without_properties
from cassandra_spec.verif.rules.watched import CHANNELS, DESIGN, PACKAGE, WATCHED, watched

DECODER = DmaConfig(
    decoder=DecoderConfig(lanes=8), bus=32, burst=128, buffer=256, queue=2, books=1, address=32
)
_LOW_POWER = "amba_axi4_low_power_interface.sv"  # no top has this interface
_BORDER = "t:$assert c:*BOUNDARY_4KB %i"
_SECONDS = 3600
FRAMES = 48
"""Cycles of bounded proofs and searches; the encoder writes after 40."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a checkout: rewritten sources by file name, and the rules left out."""

    sources: Mapping[str, str]
    left_out: tuple[str, ...]

    @classmethod
    def read(cls, checkout: Path) -> Rules:
        """Read a checkout of SVA-AXI4-FVIP.

        Raises CassandraError if it is none, or if a rule has a form that cannot be rewritten.
        """
        folder = checkout / "AXI4" / "src"
        if not (folder / f"{PACKAGE}.sv").is_file():
            raise CassandraError(f"rules must be a checkout of SVA-AXI4-FVIP, not {checkout!s}")
        files = sorted((folder / "axi4_spec").glob("*.sv"))
        packages = {path.name: path.read_text() for path in files if path.name != _LOW_POWER}
        properties = properties_of(packages.values())
        names = [f"amba_axi4_{file}_channel.sv" for file, _ in CHANNELS.values()]
        channels = {name: rewrite((folder / name).read_text(), properties) for name in names}
        return cls(
            sources={
                f"{PACKAGE}.sv": (folder / f"{PACKAGE}.sv").read_text(),
                **{name: without_properties(text) for name, text in packages.items()},
                **{name: channel.text for name, channel in channels.items()},
            },
            left_out=tuple(rule for channel in channels.values() for rule in channel.left_out),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """Rules of a top, and how they are proved; ``removed`` selects the assertions left out."""

    name: str
    top: Callable[[], CassandraDma | CassandraEncoderDma]
    method: Method
    depth: int
    removed: str = ""

    @property
    def claim(self) -> Claim:
        """The claim for the prover."""
        return Claim(
            name=self.name,
            what="The AXI ports keep rules that other people wrote.",
            design=self.top,
            method=self.method,
            depth=self.depth,
            seconds=_SECONDS,
        )


def decoder() -> CassandraDma:
    """Return a small decoder behind its DMA."""
    return CassandraDma(DECODER)


def encoder() -> CassandraEncoderDma:
    """Return a small encoder behind its DMA."""
    return CassandraEncoderDma(ENCODER)


PROOFS = (
    Proof(name="decoder", top=decoder, method="inductive", depth=4),
    Proof(name="encoder", top=encoder, method="inductive", depth=4, removed=_BORDER),
    Proof(
        name="encoder_border",
        top=encoder,
        method="bounded",
        depth=FRAMES,
        removed="t:$assert c:*BOUNDARY_4KB %d",
    ),
)
TOPS = {"decoder": decoder, "encoder": encoder}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """A proof, the number of its rules, the verdict, and the time it took."""

    proof: Proof
    rules: int
    verdict: Verdict
    seconds: float


def prove_rules(proof: Proof, rules: Rules, yosys: str, folder: Path) -> Outcome:
    """Prove rules of a top; files go to ``folder``. Raises CassandraError if a tool fails."""
    start = time.perf_counter()
    remove = f"delete {proof.removed}; " if proof.removed else ""
    _elaborate(proof.top(), (), rules, yosys, folder, remove)
    count = (folder / "claim.il").read_text().count("cell $assert ")
    verdict, _ = decide(proof.claim, folder)
    seconds = time.perf_counter() - start
    return Outcome(proof=proof, rules=count, verdict=verdict, seconds=seconds)


def unreached(name: str, rules: Rules, yosys: str, folder: Path) -> tuple[list[str], int]:
    """Return the situations of a top that are not reached, and how many there are."""
    top = TOPS[name]()
    named = situations(top)
    _elaborate(top, list(named.values()), rules, yosys, folder, "chformal -assert -remove; ")
    read = "read_rtlil claim.il; hierarchy -check -top claim; proc; flatten; opt_clean"
    run_program(["yosys", "-q", "-p", f"{read}; {GATES}"], folder, error=CassandraError)
    search = f"read_aiger claim.aig; fold; bmc3 -a -F {FRAMES} -T {_SECONDS}"
    log = run_program(["yosys-abc", "-c", search], folder, error=CassandraError)
    found = {int(number) for number in re.findall(r"^Output +(\d+) was asserted", log, re.M)}
    return [text for place, text in enumerate(named) if place not in found], len(named)


def _elaborate(
    top: CassandraDma | CassandraEncoderDma,
    wanted: Sequence[str],
    rules: Rules,
    yosys: str,
    folder: Path,
    remove: str,
) -> None:
    """Write ``claim.il``: a top and its rules, flat, without some assertions."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {
        **rules.sources,
        f"{DESIGN}.v": verilog_of(top, DESIGN),
        f"{WATCHED}.sv": watched(top, wanted),
    }
    for name, text in sources.items():
        (folder / name).write_text(text)
    read = f"read_slang --ignore-timing --threads 1 --top {WATCHED} {' '.join(sources)}"
    flat = f"{read}; proc; flatten; async2sync; chformal -lower; opt_clean"
    script = f"{flat}; {remove}rename -top claim; write_rtlil claim.il"
    run_program([yosys, "-q", "-p", script], folder, error=CassandraError)
