"""Define ``casspec bench codec`` and ``pack``."""

from __future__ import annotations

import argparse
import time

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

CODEC_EPILOG = """\
examples:
  casspec bench codec
  casspec bench codec ~/models/llama --no-dither
  casspec bench codec --isa portable avx512 --json codec.json

GB/s are 10^9 bytes of BF16 values per second of wall time, on one thread: median, minimum and
maximum over rounds. Each round measures everything once, memcpy included; `x memcpy` and `x ZipNN`
are medians of the ratios within a round. ZipNN is included if installed (`pip install zipnn`). The
weights of the demonstration model were once quantised, so entropy coders compress them too well;
dithering restores low mantissa bits like those of trained weights.
"""

PACK_EPILOG = """\
examples:
  casspec bench pack
  casspec bench pack ~/models/llama --schemes exact --rounds 1 --json pack.json

Each round packs and unpacks the model with both codecs, in a temporary folder. Seconds are medians
over rounds of wall time and (CPU) of processor time, worker processes included; `golden / native`
are median, minimum and maximum of the ratios within a round. Times include reading the source,
checksums and writing. Both codecs write the same bytes.
"""


def add_codec(parser: flags.CommandParser) -> None:
    """Define ``casspec bench codec``."""
    flags.describe(parser, CODEC_EPILOG, _codec)
    model_flags.add_source(parser)
    flags.add_count(parser, "values", "number of weights", 1 << 22)
    flags.add_count(parser, "rounds", "number of rounds", 9)
    text = "instruction sets to measure (default: the best)"
    parser.add_argument("--isa", nargs="+", metavar="NAME", help=text)
    text = "measure CPU time of all threads instead of wall time, for a machine under load"
    flags.add_switch(parser, "cpu-time", text)
    flags.add_switch(parser, "no-dither", "do not dither the weights")
    flags.add_switch(parser, "golden", "also measure golden's codec")
    flags.add_file(parser, "json", "write all times as JSON")


def _codec(args: argparse.Namespace) -> int:
    from cassandra_spec.lab.codecs.codec import codec_table, dithered, measure_codec
    from cassandra_spec.lab.codecs.tasks import take_weights
    from cassandra_spec.model.output import write_json

    values = take_weights(args.source, args.values)
    bits, seconds = measure_codec(
        values if args.no_dither else dithered(values),
        args.isa or (),
        rounds=args.rounds,
        golden=args.golden,
        clock=time.process_time if args.cpu_time else time.perf_counter,
    )
    time_of = "CPU time" if args.cpu_time else "one thread"
    weights = "as they are" if args.no_dither else "dithered"
    print(f"{values.size:,} weights of {args.source}, {weights}; {args.rounds} rounds, {time_of}\n")
    print(codec_table(bits, seconds, values.size))
    write_json(args.json, {"bits": bits, "seconds": seconds})
    return 0


def add_pack(parser: flags.CommandParser) -> None:
    """Define ``casspec bench pack``."""
    flags.describe(parser, PACK_EPILOG, _pack)
    model_flags.add_source(parser)
    flags.add_some(parser, "schemes", "schemes to measure (default: all)", SCHEMES, SCHEMES)
    flags.add_count(parser, "rounds", "number of rounds", 3)
    flags.add_jobs(parser)
    flags.add_quiet(parser)
    flags.add_file(parser, "json", "write all times as JSON")


def _pack(args: argparse.Namespace) -> int:
    from cassandra_spec.lab.codecs.pack import measure_packing, packing_table
    from cassandra_spec.model.output import write_json

    found = measure_packing(
        args.source,
        args.schemes,
        rounds=args.rounds,
        jobs=args.jobs,
        progress=flags.shows_progress(args),
    )
    print(f"{args.source}, nothing pruned; rounds: {args.rounds}\n")
    print(packing_table(found))
    write_json(args.json, found)
    return 0
