"""An adaptive gamma in the loop."""

from __future__ import annotations

from cassandra_spec.drafting import Counters, Settings, decode
from cassandra_spec.drafting.sessions import MAX_PLANNED_NODES
from tests.model.speculative.test_loop import Script, flat


def test_the_loop_follows_the_rule() -> None:
    """Right drafts make rounds longer, wrong ones end drafting; the reply is the same."""
    settings = Settings(gamma="adaptive", max_tokens=120)
    lengths = []
    for script in (Script(), Script(wrong=range(200))):
        counters = Counters()
        reply = flat(list(decode(script, [1, 2, 3], settings, counters)))
        assert reply == [script.truth(place) for place in range(3, 123)]
        lengths.append(counters.lengths)
    assert max(lengths[0]) == MAX_PLANNED_NODES
    assert set(lengths[1]) == {0}
