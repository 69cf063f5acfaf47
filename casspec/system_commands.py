"""``casspec system``: what the format buys on a device. Flags, and what they call."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from golden.errors import CassandraError

if TYPE_CHECKING:
    from system import Acceptance, FormatCost, Setup

__all__ = ["EPILOG", "estimate", "register", "reproduce"]

EPILOG = """\
examples:
  casspec system estimate --device rtx4090 --model qwen3-8b --scheme exact --gamma 3
  casspec system reproduce
"""

ESTIMATE_EPILOG = """\
examples:
  casspec system estimate --device npu --model llama3-8b --scheme mx --acceptance 0.8 --gamma 5
  casspec system estimate --device own.toml --model ~/models/qwen --scheme exact --gamma 3
  casspec system estimate --device npu --model qwen3-4b --scheme mx --gamma 3 --batch 4 --json
  casspec system estimate --device npu --model packed --scheme exact --report run.json

acceptance is accepted over drafted tokens, or, with --kind conditional, the chance that a token is
accepted when all before it were: a larger number for the same draft. Devices, models and schemes:
docs/system.md; a wrong name lists the known ones.
"""

REPRODUCE_EPILOG = """\
examples:
  casspec system reproduce
  casspec system reproduce --out build/system

Prints the paper's figures beside the model's, the reasons for differences, and what is beyond the
paper; --out also writes them as Markdown, and plots as SVG.
"""

MARKDOWN = "reproduction.md"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``casspec system``."""
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, text: str, epilog: str, run: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = subparsers.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        added.set_defaults(run=run)
        return added

    _add_estimate(add("estimate", "answer for one device and model", ESTIMATE_EPILOG, estimate))
    text = "compute the paper's figures beside its own"
    added = add("reproduce", text, REPRODUCE_EPILOG, reproduce)
    added.add_argument(
        "--out",
        dest="destination",
        type=Path,
        metavar="DIR",
        help=f"also write {MARKDOWN} and plots (SVG) into this directory",
    )


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", required=True, metavar="X", help="name, or a .toml file")
    parser.add_argument(
        "--model", required=True, metavar="Y", help="name, a config.json, or its directory"
    )
    parser.add_argument("--scheme", required=True, metavar="S", help="name of a format")
    parser.add_argument(
        "--acceptance",
        type=float,
        metavar="A",
        help="0 to 1 (default: SmolLM2's, where it was measured at this gamma)",
    )
    parser.add_argument(
        "--kind",
        choices=("drafted", "conditional"),
        default="drafted",
        help="what the acceptance counts (default drafted)",
    )
    gamma = parser.add_mutually_exclusive_group(required=True)
    gamma.add_argument("--gamma", type=int, metavar="G", help="drafted tokens in a round, 0 to 8")
    gamma.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="gamma and acceptance of a run: the output of casspec generate --json",
    )
    for name, default, text in (
        ("prompt", 222, "tokens of the prompt"),
        ("output", 5708, "tokens that are generated"),
        ("batch", 1, "requests at once, 1 to 16"),
    ):
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default {default})"
        )
    parser.add_argument("--json", action="store_true", help="everything, for other programs")


@contextmanager
def _errors_of_the_command() -> Iterator[None]:
    from system import SystemModelError

    try:
        yield
    except SystemModelError as error:
        raise CassandraError(str(error)) from None


def estimate(args: argparse.Namespace) -> int:
    """``casspec system estimate``."""
    import system
    from system.report import page

    with _errors_of_the_command():
        answer = system.estimate(_setup(args))
    print(json.dumps(answer.to_dict(), indent=1) if args.json else page(answer))
    return 0


def _setup(args: argparse.Namespace) -> Setup:
    from system import Setup, Workload, load_device, load_model
    from system.costs import load_format

    cost = load_format(args.scheme)
    acceptance, gamma = _acceptance(args, cost)
    return Setup(
        device=load_device(args.device),
        model=load_model(args.model),
        workload=Workload(prompt=args.prompt, output=args.output, batch=args.batch),
        cost=cost,
        acceptance=acceptance,
        gamma=gamma,
    )


def _acceptance(args: argparse.Namespace, cost: FormatCost) -> tuple[Acceptance, int]:
    from system import Acceptance, SystemModelError
    from system.measured import load_measured

    if args.acceptance is None and args.kind != "drafted":
        raise SystemModelError(f"acceptance must be given with --kind {args.kind}")
    if args.report is not None:
        if args.acceptance is not None:
            raise SystemModelError("acceptance must not be given beside a report, which has one")
        return load_measured(args.report)
    if args.acceptance is None:
        return Acceptance(rate=cost.default_acceptance(args.gamma)), args.gamma
    return Acceptance(rate=args.acceptance, kind=args.kind), args.gamma


def reproduce(args: argparse.Namespace) -> int:
    """``casspec system reproduce``."""
    from system.plots import plots
    from system.report import everything, markdown

    sections = list(everything())
    if args.destination is not None:
        args.destination.mkdir(parents=True, exist_ok=True)
        (args.destination / MARKDOWN).write_text(markdown(sections), encoding="utf-8")
        for plot in plots():
            (args.destination / f"{plot.name}.svg").write_text(plot.svg(), encoding="utf-8")
    for name, tables in sections:
        print(f"== {name} ==\n")
        print("\n\n".join(table.text() for table in tables) + "\n")
    return 0
