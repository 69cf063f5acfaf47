"""Compute the rate that an encoder of keys and values must have (docs/results/rate.md).

``python -m cassandra_spec.lab.gateware.encoder_rate`` prints a table. Most keys and values are
made while prompts are read. The products of the linear layers bound that speed: two operations for
each weight and token.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from cassandra_spec.lab.system.device import Device, load_device
from cassandra_spec.lab.system.workload import Model, known_models, load_model
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import publish
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table

DEVICES = ("npu", "agx-orin", "rtx4090")


def values_of_a_token(model: Model) -> int:
    """Return the number of keys and values of all layers."""
    return model.layers * model.kv_values


def prefill(model: Model, device: Device) -> float:
    """Return an upper bound of tokens per second: linear layers alone, at the peak of BF16
    products.
    """
    return device.compute["bf16"] / (2 * model.layers * model.layer_weights)


def needed(model: Model, device: Device) -> float:
    """Return the values per cycle that a single encoder needs to keep up."""
    return values_of_a_token(model) * prefill(model, device) / device.clock


def table(models: Sequence[Model], devices: Sequence[Device]) -> str:
    """Format one row per model: tokens per second, and values per cycle, on each device."""
    head = ["model", "layers", "heads of keys", "head", "values of a token"]
    heads = [f"{device.name}, {device.clock / 1e9:.2f} GHz" for device in devices]
    return markdown_table([*head, *heads], _rows(models, devices))


def _rows(models: Sequence[Model], devices: Sequence[Device]) -> Iterator[list[object]]:
    for model in models:
        sizes = [model.layers, model.kv_heads, model.head_size, f"{values_of_a_token(model):,}"]
        cells = [f"{prefill(model, d):,.0f}: {needed(model, d):.2f}" for d in devices]
        yield [model.name, *sizes, *cells]


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.gateware.encoder_rate", description=__doc__)
    parser.add_argument(
        "--models", nargs="+", default=list(known_models()), help="models (default: all)"
    )
    flags.add_file(parser, "document", "update the table of this Markdown file, print nothing")
    return parser


def _run(args: argparse.Namespace) -> int:
    devices = [load_device(name) for name in DEVICES]
    publish(table([load_model(name) for name in args.models], devices), args.document, "needed")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the table."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    raise SystemExit(main())
