"""Bits of state that change: a short campaign in decoder and encoder behind their registers."""

from __future__ import annotations

from collections import Counter

import pytest

from cassandra_spec.verif.dma.soft_errors.__main__ import OUTCOMES, Campaign, table
from cassandra_spec.verif.dma.soft_errors.flips import KINDS, Kind
from tests.marks import slow

FLIPS = 1500


@pytest.mark.parametrize("kind", [slow(kind) for kind in KINDS])
def test_no_burst_leaves_its_regions_and_reset_mends_everything(kind: Kind) -> None:
    campaign = Campaign(kind, 1)
    hits = list(campaign.run(range(FLIPS)))
    assert [hit for hit in hits if hit.broken] == []
    assert set(Counter(hit.outcome for hit in hits)) == set(OUTCOMES)
    assert len({hit.place for hit in hits}) > len(campaign.peripheral.places) // 2
    assert hits[7] == next(campaign.run([7]))  # the number says everything
    text = table(hits, campaign.peripheral.places)
    assert text.splitlines()[-1].startswith(
        f"| all | {sum(b for _, b in campaign.peripheral.places):,} "
    )
