"""Bins sampled from a segment of the encoder."""

from __future__ import annotations

import numpy as np

from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.encoder.cases import extremes
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.encoder.sampling import sample_extremes, sample_segment
from cassandra_spec.verif.library.coverage import Coverage

ONE, TWO = 0x3F80, 0x4000


def sampled(
    values: list[int], *, keep: int | None, mask: bool = True, scheme: str = "mx"
) -> set[str]:
    """Return bins of a segment of vectors of 8 values on 8 lanes, t = 3, with the codebook 1.0."""
    segment = Segment(
        format=Format.from_dict({"scheme": scheme, "beat": 8, "group": 8, "truncated": 3}),
        values=np.array(values, np.uint16),
        vector=8,
        keep=keep,
        mask=mask,
        codebook=(127,) if scheme == "unary" else (),
    )
    coverage = Coverage()
    sample_segment(coverage, segment)
    return {name.removeprefix("encode_") for name, count in coverage.hits.items() if count}


def test_each_vector_counts_by_what_is_kept_of_it() -> None:
    """Two are kept of each: some of the first, and all of the second, which is cut short."""
    assert sampled([TWO, TWO, *[ONE] * 6, ONE], keep=2) == {
        *("setting.mx.some.3", "setting.mx.all.3", "vector.mx.all.partial"),
        *("last.8.1", "group.mx.8"),
    }


def test_ties_are_equal_values_on_both_sides_of_the_border() -> None:
    assert "vector.mx.some.ties" in sampled([TWO, *[ONE] * 7], keep=2)
    assert "vector.mx.some.ties" in sampled([TWO, ONE, ONE | 0x8000, *[0] * 5], keep=2)
    assert "vector.mx.some.ties" not in sampled([TWO, *[ONE] * 7], keep=1)


def test_classes_of_values() -> None:
    kinds = {
        "zeros": [0, 0x8000] * 4,
        "nan": [0x7FC1, *[ONE] * 7],
        "infinity": [0xFF80, *[ONE] * 7],
        "subnormal": [0x8001, *[ONE] * 7],
    }
    for kind, values in kinds.items():
        found = sampled(values, keep=0, scheme="exact")
        vectors = {name for name in found if name.startswith("vector")}
        assert vectors == {f"vector.exact.none.{kind}"}


def test_masks() -> None:
    assert "mask.absent" in sampled([ONE] * 8, keep=None, mask=False)
    assert {"mask.all_kept", "mask.miss"} & sampled([ONE] * 8, keep=None) == {"mask.all_kept"}
    hits = sampled([TWO, *[ONE] * 7], keep=1, scheme="unary")
    assert {"mask.all_kept", "mask.miss"} & hits == {"mask.miss"}
    assert not any(name.startswith("group") for name in hits)


def test_extremes_of_each_scheme() -> None:
    """The directed segments take every sum to both ends; two beats of a plain one do so twice.

    Its second beat has one value, which is kept and is the largest of its group.
    """
    config = EncoderConfig(lanes=8, group=32, vector=32, segment=256)
    coverage = Coverage()
    for scheme in SCHEMES:
        for segment in extremes(np.random.default_rng(1), config, scheme):
            sample_extremes(coverage, segment, config)
    coverage.require("encode_extreme.8.*")
    plain = Coverage()
    values = np.array([TWO, *[ONE] * 6, TWO, TWO], np.uint16)
    fmt = Format(scheme="exact", beat=8, group=8, segment=256)
    segment = Segment(format=fmt, values=values, vector=16, keep=5, mask=True)
    sample_extremes(plain, segment, config)
    hit = {name.removeprefix("encode_extreme.8.") for name, count in plain.hits.items() if count}
    assert hit == {"residue.least", "whole.least"}
