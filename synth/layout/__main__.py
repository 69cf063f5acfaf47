"""A placed and routed netlist: ``python -m cassandra_spec.synth.layout`` (layout.md).

The mapped netlist of a decoder is placed by graywolf, routed by qrouter, checked by Magic and
netgen, and timed by OpenSTA with the wires that were extracted.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.report.commands import CommandParser, run_command
from cassandra_spec.report.documents import publish
from cassandra_spec.report.tables import markdown_table
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.synth.buffers.cells import input_loads
from cassandra_spec.synth.buffers.netlist import instances_of
from cassandra_spec.synth.layout.check import Checked, check
from cassandra_spec.synth.layout.flow import Effort, Technology, place, route
from cassandra_spec.synth.layout.names import Placeable, placeable
from cassandra_spec.synth.layout.picture import (
    LAYERS,
    WINDOW,
    blocks_of,
    cells_image,
    colours,
    wire_density,
    wires_image,
)
from cassandra_spec.synth.layout.routed import FILLER, Routed, lef_sizes, read_def
from cassandra_spec.synth.layout.wires import capacitances, read_trees, spef
from cassandra_spec.synth.report import add_flow, design_of, flow_of
from cassandra_spec.synth.synthesis import Design, map_for_speed, timed
from cassandra_spec.synth.timing import CriticalPath, Library


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """A netlist that has been placed and routed.

    Attributes:
        netlist: it, under the names of the layout.
        routed: what the router wrote.
        sizes: width and height in um of each cell of the library.
        failed: nets that the router could not connect.
        checked: design rules and connections.
        farad: capacitance in fF of each net.
        period: the period in ns that was asked for.
        before: critical path without wires.
        after: critical path with them.
    """

    netlist: Placeable
    routed: Routed
    sizes: dict[str, tuple[float, float]]
    failed: int
    checked: Checked
    farad: dict[str, float]
    period: float
    before: CriticalPath
    after: CriticalPath


def lay_out(
    net: Path,
    top: str,
    library: Library,
    technology: Technology,
    *,
    period: float,
    effort: Effort,
) -> Layout:
    """Place, route, check and time the mapped netlist in a file; all else goes beside it.

    Raises CassandraError if a tool is missing or fails, or if the netlist has constants.
    """
    folder, netlist = net.parent, placeable(net.read_text())
    place(netlist, technology, folder, effort)
    layout, delays, failed = route(technology, folder)
    checked = check(netlist, technology, layout, folder)
    farad = capacitances(checked.wires.read_text(), netlist)
    trees = read_trees(delays.read_text())
    outputs = driving_pins(net, library)
    (folder / f"{top}.spef").write_text(spef(netlist, trees, farad, top, outputs))
    return Layout(
        netlist=netlist,
        routed=read_def(layout.read_text()),
        sizes=lef_sizes(technology.lef.read_text()),
        failed=failed,
        checked=checked,
        farad=farad,
        period=period,
        before=timed(net, top, library, period)[0],
        after=timed(net, top, library, period, f"{top}.spef")[0],
    )


def driving_pins(net: Path, library: Library) -> set[str]:
    """Names of pins that drive, in the cells of a netlist."""
    loads = input_loads(library.path.read_text(errors="replace"))
    instances = instances_of(net.read_text()).values()
    return {pin for cell, pins in instances for pin in pins if (cell, pin) not in loads}


# --- tables and picture -------------------------------------------------------------------------


def table(layout: Layout) -> str:
    """Figures of a layout, as the document has them."""
    return markdown_table(["figure", "value"], [*_areas(layout), *_wires(layout), *_checks(layout)])


def _areas(layout: Layout) -> list[list[str]]:
    routed = layout.routed
    fill = sum(one.cell == FILLER for one in routed.components)
    width, height = routed.die
    area, free = routed.area(layout.sizes)
    return [
        ["cells", f"{len(routed.components) - fill:,}"],
        ["fill cells", f"{fill:,}"],
        ["nets", f"{len(layout.netlist.nets):,}"],
        ["die, um", f"{width:.0f} x {height:.0f}"],
        ["cells, mm2", f"{area * 1e-6:.3f}"],
        ["share of the rows that is cells", f"{100 * area / (area + free):.1f} %"],
    ]


def _wires(layout: Layout) -> list[list[str]]:
    lengths = layout.routed.lengths()
    vias = layout.routed.vias()
    clock = next(net for net, name in layout.netlist.nets.items() if name == "clk")
    return [
        ["wires, mm", f"{sum(lengths.values()) / 1000:.0f}"],
        *([f"- {layer}, mm", f"{length / 1000:.1f}"] for layer, length in lengths.items()),
        ["vias", f"{sum(vias.values()):,}"],
        ["nets that failed", str(layout.failed)],
        ["capacitance of wires, pF", f"{sum(layout.farad.values()) / 1000:.1f}"],
        ["- of the clock's net, pF", f"{layout.farad.get(clock, 0.0) / 1000:.2f}"],
    ]


def _checks(layout: Layout) -> list[list[str]]:
    broken = layout.checked.violations
    rules = "; ".join(f"{count} of {rule}" for rule, count in broken.items())
    paths = (("without wires", layout.before), ("with wires", layout.after))
    return [
        ["violations of design rules", rules or "0"],
        ["layout against netlist", "matches" if layout.checked.matches else "differs"],
        ["- nets that are open", _listed(layout.checked.opens)],
        ["- nets that touch another", _listed(layout.checked.shorts)],
        *(
            row
            for label, path in paths
            for row in (
                [f"period {label}, ns", f"{layout.period - path.slack:.2f}"],
                [f"- path {label}", f"{path.depth} cells, `{path.start}` to `{path.end}`"],
            )
        ),
    ]


def _listed(nets: Sequence[str]) -> str:
    """How many, and the first of them by name."""
    return ", ".join([str(len(nets)), *(f"`{net}`" for net in nets[:4])])


def picture(layout: Layout, design: Design, library: Library, outputs: set[str]) -> bytes:
    """Cells by block, length of wires by place, and a part close up, as PNG."""
    from cassandra_spec.report.plots import Panel, draw_panels  # needs the extra `plots`

    routed = layout.routed
    blocks = blocks_of(layout.netlist, library.flip_flops, outputs, design.block_of)
    palette = colours(sorted(set(blocks.values())))
    window = (WINDOW, WINDOW * routed.die[1] / routed.die[0])
    panels = [
        Panel(
            title="cells by block",
            image=cells_image(routed, layout.sizes, blocks, palette),
            size=routed.die,
            axis="um",
            legend=palette,
        ),
        Panel(
            title="wires",
            image=wire_density(routed),
            size=routed.die,
            axis="um",
            legend={"um of wire per um2": None},
        ),
        Panel(
            title="wires in the middle",
            image=wires_image(routed, window),
            size=window,
            axis="um",
            legend=LAYERS,
        ),
    ]
    return draw_panels(panels, title=design.top)


# --- the command --------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Lay out a decoder; 0 if all nets are routed and both checks pass, 1 if not."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.layout", description=__doc__)
    parser.add_argument("--lanes", type=int, default=8, help="default: 8")
    parser.add_argument(
        "--schemes", nargs="+", choices=SCHEMES, default=SCHEMES, help="default: all"
    )
    text, metavar = "the t that it has (default: all)", ("LEAST", "MOST")
    parser.add_argument("--truncated", nargs=2, type=int, metavar=metavar, help=text)
    text = f"share of the rows that is cells (default {Effort.density})"
    parser.add_argument("--density", type=float, default=Effort.density, help=text)
    text = "graywolf tries so many times fewer moves (default 1)"
    parser.add_argument("--fast", type=int, default=Effort.fast, help=text)
    parser.add_argument("--out", type=Path, default=Path("build/layout"), help="folder for files")
    parser.add_argument("--liberty", type=Path, default=None, help="library (or LIBERTY=)")
    parser.add_argument("--technology", type=Path, help="qflow's folder (or QFLOW_TECHNOLOGY=)")
    parser.add_argument("--scripts", type=Path, help="qflow's scripts (or QFLOW_SCRIPTS=)")
    parser.add_argument("--document", type=Path, help="Markdown file to put the table into")
    add_flow(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    effort = Effort(density=args.density, fast=args.fast)
    technology = Technology.chosen(args.technology, args.scripts)
    library = Library.chosen(args.liberty)
    flow = dataclasses.replace(flow_of(args), repaired=False)  # abc's buffers drive wires, too
    schemes = tuple(name for name in SCHEMES if name in args.schemes)
    truncated = tuple(args.truncated or DecoderConfig.truncated)
    config = DecoderConfig(lanes=args.lanes, schemes=schemes, truncated=truncated)
    design = design_of(config)
    print(f"{design.top} ...", file=sys.stderr, flush=True)
    net = map_for_speed(design, library, args.out, flow)
    layout = lay_out(net, design.top, library, technology, period=flow.period, effort=effort)
    folder = args.document.parent if args.document else args.out
    image = picture(layout, design, library, driving_pins(net, library))
    (folder / "layout.png").write_bytes(image)
    publish(f"![layout](layout.png)\n\n{table(layout)}", args.document, "layout")
    good = not layout.failed and not layout.checked.violations and layout.checked.matches
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
