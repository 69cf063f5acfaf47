"""The mutations: where, what instead of what, and what must notice, cheapest first.

A check is ``claim:NAME`` (:mod:`cassandra_spec.verif.formal`), or ``sim:BLOCK`` or
``suite:BLOCK``: the cocotb suite of a block (:mod:`cassandra_spec.verif.blocks`, or a module of
:mod:`cassandra_spec.verif` that has a function ``design``), with ``/REGULAR_EXPRESSION`` behind it
if a part of the tests will do. ``suite`` runs it under Verilator as it is; ``sim`` in Amaranth's
simulator (:mod:`cassandra_spec.verif.tools.simulated`), which needs no build. ``test:FILE`` are
tests that pytest runs (``rtl.test_read_master``), with ``/EXPRESSION`` as of ``-k``.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError

__all__ = ["MUTATIONS", "ROOT", "Mutation", "mutations"]

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutation:
    """One fault: ``old``, which occurs once in ``file``, becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    checks: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The text of the file with the fault.

        Raises CassandraError if ``old`` does not occur exactly once.
        """
        if text.count(self.old) != 1:
            raise CassandraError(
                f"old must occur once in {self.file}, not {text.count(self.old)} times"
                f" ({self.name})"
            )
        return text.replace(self.old, self.new)

    def is_stale(self, root: Path = ROOT) -> bool:
        """Whether the place is gone: the source has changed since."""
        return self.old not in (root / self.file).read_text(encoding="utf-8")


def _of(file: str, *checks: str) -> _Maker:
    return _Maker(file, checks)


class _Maker:
    """Makes mutations of one file that the same checks must find."""

    def __init__(self, file: str, checks: tuple[str, ...]) -> None:
        self.file = file
        self.checks = checks

    def __call__(self, name: str, old: str, new: str) -> Mutation:
        full = f"{Path(self.file).stem}.{name}"
        return Mutation(name=full, file=self.file, old=old, new=new, checks=self.checks)


_zero = _of("rtl/zero_counter.py", "claim:zero_counter.chunk")
_windows = _of("rtl/zero_counter.py", "claim:zero_counter.chunks")
_expand = _of("rtl/common/networks.py", "claim:networks.expand.l8")
_compact = _of("rtl/common/networks.py", "claim:networks.compact.8")
_rotate = _of("rtl/common/networks.py", "claim:networks.rotate")
_shift = _of("rtl/common/networks.py", "claim:networks.shift")
_counts = _of("rtl/common/networks.py", "claim:networks.counts")
_bitmap = _of("rtl/decode/bitmap_expand.py", "claim:networks.bitmap_expand")
_buffer = _of("rtl/decode/bitmap_expand.py", "sim:bitmap_expand/buffer")
_book = _of("rtl/decode/codebook.py", "sim:codebook")
_mantissa = _of("rtl/common/mantissa.py", "sim:mantissa")
_shifter = _of("rtl/common/shifter.py", "claim:networks.shifter")
_residue = _of("rtl/common/residue.py", "claim:networks.residue")
_reader = _of("rtl/common/superblock_reader.py", "sim:superblock_reader")
_SPECULATION = (
    "sim:speculation/every_kind.*l8",
    "sim:speculation/bad_regions",
    "sim:speculation/instance=l8",
)
_VERIFICATION = (
    "sim:verification/every_kind.*l8",
    "sim:verification/bad_segments.*l8",
    "sim:verification/rows_belong.*l8",
    "sim:verification/instance=l8",
)
_FULL_RATE = tuple(check.replace("l8", "full") for check in _VERIFICATION)
_ranks = _of("rtl/decode/exponent_path.py", *_SPECULATION)
_overflow = _of("rtl/decode/exponent_path.py", "sim:exponent_path/illegal_codes")
_queue = _of("rtl/decode/exponent_path.py", "sim:exponent_path/the_queue")
_spec = _of("rtl/decode/speculation.py", *_SPECULATION, "claim:decoder.segments")
_spec_data = _of("rtl/decode/speculation.py", *_SPECULATION)
_verif = _of("rtl/decode/verification.py", *_VERIFICATION, "claim:decoder.segments")
_verif_data = _of("rtl/decode/verification.py", *_VERIFICATION)
_full = _of("rtl/decode/verification_full.py", *_FULL_RATE)
_codes = _of("rtl/decode/pruned_exponents.py", *_VERIFICATION)
_bytes = _of("rtl/decode/pruned_exponents.py", "sim:pruned_bytes")
_top = _of("rtl/decoder.py", "claim:decoder.segments", "claim:decoder.ends")
_choice = _of("rtl/encode/topk.py", "claim:selection.choice")
_select = _of("rtl/encode/topk.py", "claim:selection.threshold", "sim:encoder.front/instance=l8")
_align = _of("rtl/encode/align.py", "sim:encoder.align")
_map = _of("rtl/encode/rank_map.py", "sim:encoder.rank_map")
_path = _of("rtl/encode/record_path.py", "sim:encoder.front/instance=l8")
_residues = _of("rtl/encode/packers.py", "claim:packers.residue")
_blocks = _of("rtl/encode/packers.py", "claim:packers.blocks", "claim:packers.blocks_4")
_shared = _of("rtl/encode/packers.py", "claim:packers.shared")
_unary = _of("rtl/encode/packers.py", "claim:packers.unary", "claim:packers.unary_4")
_waiting = _of("rtl/common/queues.py", "claim:packers.pairs")
_region = _of("rtl/encode/region_writer.py", "claim:packers.regions")
_loader = _of(
    "rtl/encode/vector_buffer.py", "claim:selection.slots", "sim:encoder.front/instance=l8"
)
_loader_data = _of("rtl/encode/vector_buffer.py", "sim:encoder.front/instance=l8")
_schedule = _of("rtl/encode/schedules.py", "sim:encoder.regions_testbench")
_back = _of("rtl/encode/regions.py", "sim:encoder.regions_testbench")
_bursts = _of("rtl/dma/write_master.py", "claim:store.bursts")
_writes = _of("rtl/dma/write_master.py", "claim:store.writes")
_entries = _of("rtl/dma/store.py", "claim:store.ledger")
_store = _of("rtl/dma/write_master.py", "suite:dma.storing/failed_writes", "suite:dma.storing")
_read = _of("rtl/dma/read_master.py", "test:rtl.test_read_master")
_reads = _of("rtl/dma/read_master.py", "suite:dma.failures/failed_reads", "suite:dma.decoding")
_addresses = _of("rtl/dma/read_master.py", "suite:dma.decoding/idle_by_back_pressure")
_descriptors = _of("rtl/dma/descriptors.py", "test:rtl.test_descriptors")
_merge = _of("rtl/dma/merge.py", "test:rtl.test_merge")
_codebooks = _of("rtl/dma/codebooks.py", "test:rtl.test_codebooks")
_file = _of("rtl/dma/register_file.py", "test:rtl.test_register_file")
_pairs = _of("rtl/dma/registers.py", "test:rtl.test_register_file")
_registers = _of("rtl/dma/registers.py", "suite:dma.software/interrupts")
_channel = _of("rtl/dma/channel.py", "suite:dma.failures/failed_reads", "suite:dma.failures")
_rooms = _of("rtl/dma/config.py", "suite:dma.storing/highest_bit", "suite:dma.storing")

MUTATIONS = (
    _zero("run_too_long", "run.eq(i - 1 - j)", "run.eq(i - j)"),
    _zero(
        "no_saturation",
        "first.eq(Mux(joined > self.limit, self.limit, joined))",
        "first.eq(joined)",
    ),
    _zero(
        "carry_forgets_the_tail",
        "self.carry_out.eq(self.width - 1 - i)",
        "self.carry_out.eq(self.width - i)",
    ),
    _zero("limit_is_legal", "joined >= self.limit", "joined > self.limit"),
    _windows("overflow_of_the_last_chunk", "overflow | chunk.overflow", "chunk.overflow"),
    _windows("no_carry", "chunk.carry_in.eq(carry)", "chunk.carry_in.eq(self.carry_in)"),
    _expand("select_one_early", "(start[:bit] > place)", "(start[:bit] >= place)"),
    _expand(
        "expand_from_the_wrong_half",
        "nodes[low + half], nodes[low])",
        "nodes[low], nodes[low + half])",
    ),
    _compact(
        "compact_by_the_wrong_start",
        "select_bit(starts[base + half], bit, place)",
        "select_bit(starts[base], bit, place)",
    ),
    _rotate(
        "rotate_by_one_less",
        "nodes[(i + (1 << bit)) % len(nodes)]",
        "nodes[(i + (1 << bit) - 1) % len(nodes)]",
    ),
    _shift("ones_shifted_in", "*([0] * step)]", "*([1] * step)]"),
    _counts(
        "prefix_without_its_left",
        "left = sums[(i // span) * span - 1]",
        "left = sums[(i // span) * span - 2]",
    ),
    _counts(
        "popcount_drops_the_odd_one",
        "([terms[-1]] if len(terms) % 2 else [])",
        "([terms[-2]] if len(terms) % 2 else [])",
    ),
    _bitmap(
        "first_lane_skipped",
        "starts = [Const(0, width), *counts[:-1]]\n        elements",
        "starts = [Const(1, width), *counts[:-1]]\n        elements",
    ),
    _buffer("halves_swapped", "half == i // self.lanes", "half != i // self.lanes"),
    _buffer(
        "planes_reversed",
        "self.block[j][i % self.lanes] for j in range(self.planes)",
        "self.block[j][i % self.lanes] for j in reversed(range(self.planes))",
    ),
    _buffer(
        "head_stays_on_clear", "m.d.sync += [half.eq(0), head.eq(0)]", "m.d.sync += half.eq(0)"
    ),
    _book(
        "last_entry_is_missing",
        "self.missing[lane].eq(rank >= self.count)",
        "self.missing[lane].eq(rank + 1 >= self.count)",
    ),
    _book("packets_are_joined", "inside.eq(~self.load.payload.last)", "inside.eq(1)"),
    _book(
        "entries_past_the_size_count",
        "with m.If(place < self.size):",
        "with m.If(place <= self.size):",
    ),
    _ranks("carry_survives_clear", "m.d.sync += carry.eq(0)", "m.d.sync += carry.eq(carry)"),
    _overflow(
        "overflow_does_not_stay",
        "self.overflow.eq(self.overflow | counter.overflow)",
        "self.overflow.eq(counter.overflow)",
    ),
    _ranks(
        "head_moves_without_advance",
        "head.eq(Mux(self.advance, head + counts[-1], head))",
        "head.eq(head + counts[-1])",
    ),
    _queue(
        "queue_too_small",
        "return 1 << (most - 1).bit_length()",
        "return 1 << (most - 1).bit_length() - 1",
    ),
    _mantissa("fill_one_bit_lower", "self.truncated == bit + 1", "self.truncated == bit + 2"),
    _mantissa("fill_in_targets", "~self.target & self.midpoint &", "self.midpoint &"),
    _mantissa("sign_from_the_mantissa", "self.sign.eq(self.high[0])", "self.sign.eq(self.high[1])"),
    _shifter("normal_one_too_soon", "self.shared == 8 - bit", "self.shared == 7 - bit"),
    _shifter("borrow_forgotten", "Mux(low[3], less, self.shared[3:])", "self.shared[3:]"),
    _residue("fields_one_bit_wider", "self.widths[lane] > bit", "self.widths[lane] >= bit"),
    _reader(
        "room_for_one_word_less",
        "self.level <= (self.depth - 1) * self.word_rows",
        "self.level < (self.depth - 1) * self.word_rows",
    ),
    _reader(
        "overlong_one_row_later", "left >= self.superblock_rows", "left > self.superblock_rows"
    ),
    _reader(
        "words_in_the_wrong_order",
        "ring.eq(Cat(*words[i:], *words[:i]))",
        "ring.eq(Cat(*words[i:], *reversed(words[:i])))",
    ),
    _reader(
        "head_stays_after_a_region",
        "m.d.sync += [first.eq(1), fill.eq(1), row.eq(0), self.level.eq(0)]",
        "m.d.sync += [first.eq(1), fill.eq(1), self.level.eq(0)]",
    ),
    _spec_data(
        "window_taken_too_late",
        "self.unary & self.more & (after < lanes)",
        "self.unary & self.more & (after < lanes - 1)",
    ),
    _spec_data(
        "mx_takes_255",
        '(shared == 0) | ((shared == 255) & self.config.selects(self.active.scheme, "mx"))',
        "shared == 0",
    ),
    _spec_data(
        "number_runs_on", "self.number.eq(self.number + 1)", "self.number.eq(self.number + 2)"
    ),
    _spec("last_before_the_drain", "self.valid2 & (~last | self.drained)", "self.valid2"),
    _spec(
        "killed_beat_stays",
        "valid1.eq(0), self.valid2.eq(~self.free2), abort_held.eq(0)",
        "self.valid2.eq(~self.free2), abort_held.eq(0)",
    ),
    _spec("busy_forgets_the_pipeline", "self.busy.eq(~idle | ~self.empty)", "self.busy.eq(~idle)"),
    _verif(
        "last_before_the_drain", "self.full_out & (~self.out.last | self.drained)", "self.full_out"
    ),
    _verif(
        "error_sent_twice",
        "self.giving_up & ~sent & self.free_out",
        "self.giving_up & self.free_out",
    ),
    _verif(
        "values_in_error",
        "m.d.comb += self.values.payload.present.eq(0)",
        "m.d.comb += self.values.payload.present[1:].eq(0)",
    ),
    _spec_data(
        "block_not_told",
        "self.begins.eq(self.take_block)",
        "self.begins.eq(self.take_block & (self.count != 1))",
    ),
    _verif_data(
        "flag_read_the_wrong_way",
        "beat.flagged[lane] & ~unpack.fields[lane][0]",
        "beat.flagged[lane] & unpack.fields[lane][0]",
    ),
    _verif_data(
        "rows_of_the_next_segment",
        "wanted > Mux(self.region, reader.level, 0)",
        "wanted > reader.level",
    ),
    _full(
        "residue_of_the_beat_behind",
        "self.demand.needs.eq(self.beat_residue.needs)",
        "self.demand.needs.eq(self.beat_join.needs)",
    ),
    _full(
        "pruned_rows_stay_in_the_reader",
        "wanted.eq(self.pruned_rows + (self.low_rows + self.residue_rows))",
        "wanted.eq(self.low_rows + self.residue_rows)",
    ),
    _full(
        "waiting_beat_is_overwritten",
        "& (~self.full_2 | self.free_out)",
        "& (~self.full_2 | self.full_out)",
    ),
    _full(
        "rows_of_the_next_segment",
        "level = Mux(self.region, self.reader.level, 0)",
        "level = self.reader.level",
    ),
    _full("short_before_the_end", "ready & ~enough & self.ended", "ready & ~enough & self.running"),
    _codes("prefetch_too_early", "level < needed + self", "level <= needed + self"),
    _codes("starves_for_one_less", "level < needed)", "level + 1 < needed)"),
    _codes("escape_is_no_rank", "(rank > self.entries)", "(rank >= self.entries)"),
    _bytes("row_is_not_kept", "with m.If(self.wanted != 0):", "with m.If(self.wanted == 0):"),
    _bytes("escape_has_its_mantissa_again", "(self.long[lane], high,", "(self.long[lane], low,"),
    _bytes("rest_is_not_counted", "level.eq(level - used)", "level.eq(0)"),
    _top("errors_do_not_stay", "with m.Elif(self.clear_error):", "with m.Else():"),
    _top(
        "command_forgotten_while_busy",
        "held.eq(self.command.payload), pending.eq(1)",
        "held.eq(self.command.payload), pending.eq(~back.busy)",
    ),
    _top("idle_too_early", "front.busy | back.busy | pending", "front.busy | pending"),
    _choice("one_tie_too_few", "(counts[lane] <= left)", "(counts[lane] < left)"),
    _choice("ties_start_anew", "Mux(first, ties, self.left)", "ties"),
    _choice(
        "ties_run_below_zero", "Mux(counts[-1] >= left, 0, left - counts[-1])", "left - counts[-1]"
    ),
    _choice(
        "threshold_counts_as_larger",
        "(magnitude > self.threshold.value)",
        "(magnitude >= self.threshold.value)",
    ),
    _choice(
        "none_keeps_ties",
        "(magnitude == self.threshold.value) & ~self.threshold.none",
        "(magnitude == self.threshold.value)",
    ),
    _select("prefix_is_not_looked_at", "Cat(agrees[:-1]).all()", "Cat(agrees[1:-1]).all()"),
    _select("one_more_than_wanted", "total >= wanted for total", "total > wanted for total"),
    _select("counts_run_on", "Mux(added.first, 0, total) + one", "total + one"),
    _align(
        "effective_exponent_of_subnormals",
        "self.exponent[0] | (self.exponent == 0)",
        "self.exponent[0]",
    ),
    _align(
        "too_far_is_one_nearer",
        "Mux(difference >= OUT, OUT, difference[:4])",
        "Mux(difference >= OUT, OUT - 1, difference[:4])",
    ),
    _align("hidden_one_of_subnormals", "self.magnitude[7:] != 0", "1"),
    _align("ties_to_odd", "(sticky | shifted[1])", "(sticky | ~shifted[1])"),
    _align(
        "sticky_looks_too_high", "self.distance > bit + 1 for bit", "self.distance > bit for bit"
    ),
    _align("zero_escapes", "whole | (empty & ~zero)", "whole | empty"),
    _align("residue_under_an_escape", "& below & (~whole).replicate(7)", "& below"),
    _map("old_entries_stay", "m.d.sync += used.eq(here)", "m.d.sync += used.eq(used | here)"),
    _map("entries_past_the_size_wrap", "place.eq(here << 1)", "place.eq(here.rotate_left(1))"),
    _map("unused_entries_are_found", "entry[8] & (entry[:8] == exponent)", "entry[:8] == exponent"),
    _map("part_is_not_looked_at", "Array(whole[i::count])[self.part]", "whole[i]"),
    _map("first_part_again", "Mux(hits[AT_ONCE:].any(), 1, part)", "part"),
    _path(
        "only_one_part_of_the_book",
        "self.more.eq(unary & missing.any() & (self.part != self.parts - 1))",
        "self.more.eq(0)",
    ),
    _path("earlier_parts_forgotten", "known.eq(Mux(first, 0, self.stage.kept))", "known.eq(0)"),
    _path("rank_of_a_later_part", "moves & (first | self.found[lane])", "moves"),
    _path("residue_one_bit_wider", "bit & (width > i)", "bit & (width >= i)"),
    _path("causes_of_the_last_segment", "m.d.sync += [errors.eq(0), saturated.eq(0)]", "pass"),
    _residues(
        "segment_begins_inside_a_word",
        "m.d.sync += level.eq(Mux(beat.last, 0, level + ends[-1]))",
        "m.d.sync += level.eq(level + ends[-1])",
    ),
    _blocks(
        "whole_block_is_flushed",
        "flushing.eq(beat.last & (end[:bits] != 0))",
        "flushing.eq(beat.last)",
    ),
    _blocks(
        "beat_taken_while_flushing",
        "self.beats.ready.eq(~flushing & (~full | self.blocks.ready))",
        "self.beats.ready.eq(~full | self.blocks.ready)",
    ),
    _blocks("place_of_the_next_is_held", "Mux(level > i, held", "Mux(level >= i, held"),
    _shared("row_without_exponents", "(beat.last & (end != 0))", "beat.last"),
    _shared("level_stays_after_a_row", "level.eq(Mux(leaves, 0, end))", "level.eq(end)"),
    _unary("code_one_bit_shorter", "beat.ranks[i] + 1", "beat.ranks[i]"),
    _unary("third_window_forgotten", "held.eq(Mux(again, third,", "held.eq(Mux(again, 0,"),
    _unary("long_beat_not_seen", "self.long.eq(total > 2 * size)", "self.long.eq(0)"),
    _unary("two_windows_too_far", "[place.eq(place - 2 * size)", "[place.eq(place - size)"),
    _unary("end_filled_from_the_start", "self.origin.eq(self.level)", "self.origin.eq(0)"),
    _waiting("turn_changes_after_two", "self.write.ready & ~pair.two", "self.write.ready"),
    _waiting("room_for_one_of_two", "rooms[0] & rooms[1]", "rooms[0] | rooms[1]"),
    _waiting("second_is_the_first", "Mux(second, pair.items[1], pair.items[0])", "pair.items[0]"),
    _region("word_held_too_long", "total > BUS_ROWS", "total >= BUS_ROWS"),
    _region("last_in_every_superblock", "self.flushing & final", "final"),
    _region(
        "ended_before_its_last_word",
        "self.ended.eq(self.done & ~self.words.valid)",
        "self.ended.eq(self.done)",
    ),
    _region("padding_ends_too_soon", "self.flushing.eq(~final)", "self.flushing.eq(0)"),
    _loader("slots_are_always_free", "self.room.eq(used != _SLOTS)", "self.room.eq(1)"),
    _loader("slot_stays", "self.slot.eq(self.slot + self.vector_ends)", "self.slot.eq(self.slot)"),
    _loader_data(
        "rest_of_a_packet_stays", "Mux(word.last, _State.IDLE, _State.DRAIN)", "_State.IDLE"
    ),
    _loader_data("first_lane_may_be_missing", "word.keep[1 : lane + 1]", "word.keep[: lane + 1]"),
    _schedule(
        "window_taken_too_soon",
        "Mux(starve, self.lack + lanes > self.ones, self.lack + lanes > 0)",
        "Mux(starve, self.lack + lanes > self.ones, self.lack + lanes >= 0)",
    ),
    _schedule("last_window_stays", "self.tidy.eq(self.unary & ~ended)", "self.tidy.eq(0)"),
    _schedule(
        "window_after_the_last_goes",
        "ended = self.exhausted | (self.starve & self.ends[0])",
        "ended = self.exhausted",
    ),
    _schedule("one_window_is_enough", "(self.lack > self.ones if self.pairs else 1)", "0"),
    _schedule(
        "mask_before_both_windows",
        "[*self.codes[:window], mask, *self.codes[window:]]",
        "[mask, *self.codes]",
    ),
    _schedule("value_without_room", "<= BUS_ROWS - self.unit)", "<= BUS_ROWS)"),
    _schedule("block_of_the_value_stays", "Mux(self.move_values, after, head) != 0", "head != 0"),
    _schedule(
        "block_taken_too_late", "(self.fields < self.count)", "(self.fields + 1 < self.count)"
    ),
    _schedule("eight_rows_are_two_pieces", "(self.count <= BUS_ROWS)", "(self.count < BUS_ROWS)"),
    _back("record_seen_twice", "now[i].eq(had[i] | ready)", "now[i].eq(ready)"),
    _back("planes_of_the_other_scheme", "Mux(unary, 8, 9)", "Mux(unary, 9, 8)"),
    _back(
        "begun_values_beside_a_block",
        "Mux(self.pruned.empty, self.stored.level, 0)",
        "self.stored.level",
    ),
    _bursts("burst_twice_as_long", "(after & (longest - 1))", "(after & (2 * longest - 1))"),
    _bursts("word_beyond_the_room_counts", "burst.words + fits)", "burst.words + 1)"),
    _writes("last_word_not_marked", "last.eq(left == 1)", "last.eq(left == 2)"),
    _writes("burst_begins_too_soon", "((left == 0) | final)", "(left <= 2)"),
    _entries(
        "more_segments_than_room",
        "self.places.ready.eq(self.flying != IN_FLIGHT)",
        "self.places.ready.eq(1)",
    ),
    _store("response_not_waited_for", "answered.eq(bare | self.responses.valid)", "answered.eq(1)"),
    _store("error_stays", "failed.eq((failed | bad) & ~sent.end)", "failed.eq(failed | bad)"),
    _rooms(
        "rooms_one_bit_shorter",
        "return LENGTH_BITS - self.word_bits",
        "return LENGTH_BITS - self.word_bits - 1",
    ),
    _read(
        "border_one_word_late",
        "longest - (burst.address & (longest - 1))",
        "longest - (burst.address & (longest - 2))",
    ),
    _read("room_is_not_waited_for", "known & (free >= burst.words)", "known"),
    _read(
        "only_decerr_is_an_error",
        "bad.eq(self.beat.resp[RESPONSE_ERROR])",
        "bad.eq(self.beat.resp.all())",
    ),
    _read("packet_goes_on_after_an_error", "(region.words == 1) | bad", "region.words == 1"),
    _read(
        "failed_burst_begins_before_its_region",
        "Mux(begins, self.first, region.address[low:] << low)",
        "region.address[low:] << low",
    ),
    _read(
        "every_part_is_the_last",
        "words.payload.last.eq(wide.payload.last & end)",
        "words.payload.last.eq(wide.payload.last)",
    ),
    _reads("room_of_dropped_words_is_lost", "released.eq(taken | give)", "released.eq(taken)"),
    _addresses(
        "address_replaced_while_it_waits", "free.eq(~self.ar.valid | self.ar.ready)", "free.eq(1)"
    ),
    _descriptors("drops_while_enabled", "self.drop & ~self.enable", "self.drop"),
    _descriptors(
        "dropped_ones_leave",
        "self.enable & (doomed == 0) & ready",
        "self.enable & ready",
    ),
    _descriptors(
        "second_region_is_not_waited_for",
        "first.ready & (second.ready | ~head.second)",
        "first.ready",
    ),
    _descriptors(
        "places_are_not_waited_for",
        "self.orders.ready & self.places.ready",
        "self.orders.ready",
    ),
    _codebooks(
        "half_a_book_is_defined", "self.defined[slot].eq(self.last)", "self.defined[slot].eq(1)"
    ),
    _codebooks(
        "slots_wrap",
        "(self.slot < slots) & (self.entry < size)",
        "self.entry < size",
    ),
    _codebooks("any_book_will_do", "loaded & (inside == order.slot)", "loaded"),
    _codebooks(
        "old_entries_stay",
        "m.d.sync += loaded.eq(0)",
        "m.d.sync += loaded.eq(loaded)",
    ),
    _channel("flag_stays", "m.d.sync += flags[tag].eq(0)", "m.d.sync += flags[tag].eq(flags[tag])"),
    _channel(
        "more_segments_than_tags",
        "orders.ready.eq(self.flying != IN_FLIGHT)",
        "orders.ready.eq(self.flying != IN_FLIGHT + 1)",
    ),
    _channel(
        "second_region_never_fails",
        "(self.fault[place] == tag) for place in range(2)",
        "(self.fault[place] == tag) for place in range(1)",
    ),
    _merge(
        "turn_ends_too_soon",
        "self.values.valid & self.values.ready & self.values.payload.last",
        "self.values.valid & self.values.ready",
    ),
    _merge("flagged_word_keeps_lanes", "(place == 0) | beat.error", "place == 0"),
    _merge(
        "segment_begins_inside_a_word",
        "place.eq(Mux(complete, 0, place + 1))",
        "place.eq(place + 1)",
    ),
    _file("strobes_ignored", "(signal & ~mask) | (bits & mask)", "bits"),
    _file(
        "event_lost_while_it_is_cleared",
        '(signal & ~clear) | getattr(self, f"{name}_set")',
        '(signal | getattr(self, f"{name}_set")) & ~clear',
    ),
    _file(
        "response_not_waited_for",
        "addressed & filled & (~self.b.valid | self.b.ready)",
        "addressed & filled",
    ),
    _file(
        "cannot_be_read_back",
        'field.access == "wo" else signal',
        'field.access != "ro" else signal',
    ),
    _pairs("upper_half_is_not_held", 'latched=access == "ro"', 'latched=access == "wo"'),
    _registers(
        "enables_do_not_stay",
        '_bits("rw", *((name, f"enable {name}")',
        '_bits("wo", *((name, f"enable {name}")',
    ),
)
"""All of them, by the blocks of docs/microarchitecture.md."""


def mutations(patterns: Sequence[str] = ()) -> list[Mutation]:
    """Those whose names match a pattern (``*`` and ``?``); without one, all.

    Raises CassandraError for a pattern that matches none.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(mutation.name, pattern) for mutation in MUTATIONS):
            names = ", ".join(mutation.name for mutation in MUTATIONS)
            raise CassandraError(f"PATTERN must match one of {names}, not {pattern!r}")
    return [
        mutation
        for mutation in MUTATIONS
        if not patterns or any(fnmatch.fnmatchcase(mutation.name, p) for p in patterns)
    ]
