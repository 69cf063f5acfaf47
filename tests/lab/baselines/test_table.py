"""Drafts of a baked table: the chain, and more candidates of each slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.drafting import NgramTable, Settings, accept_greedy
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import parse_method
from cassandra_spec.lab.baselines.methods.table import SwarmDrafter
from cassandra_spec.lab.baselines.teacher_forced import accepted_lengths
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.speculative import CassandraForCausalLM
from tests.lab.baselines.replies import PROMPTS, check_lossless, reply
from tests.model.tiny import WORDS

TEXT = [[number**3 // 7 % 5 + 2 for number in range(200)], [3, 4] * 20, [5, 9, 17, 3, 5, 9, 2]]


@pytest.fixture(scope="session")
def file(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of a text and of the model's replies to the prompts."""
    lm = CassandraForCausalLM.from_pretrained(six_layers)
    said = [[*p, *reply(lm, p, Settings(max_tokens=12))[0]] for p in PROMPTS]
    path = tmp_path_factory.mktemp("table") / "table.safetensors"
    made = NgramTable.count([*TEXT, *said], vocabulary=len(WORDS))
    made.save(path, {"model_digest": open_packed(six_layers).digest})
    return path


@pytest.mark.parametrize(
    "method", ["ott-od", "ott-od:threshold=0.05", "ott-od:copies=yes", "ott-swarm:branches=3"]
)
def test_replies_are_those_of_plain_decoding(
    lm: CassandraForCausalLM, file: Path, method: str
) -> None:
    name, _, options = method.partition(":")
    found = check_lossless(lm, f"{name}:table={file}" + (f":{options}" if options else ""))
    assert sum(each.accepted for each in found)
    assert not any(each.passes for each in found)


@pytest.mark.parametrize("gamma", [1, 4])
def test_a_chain_is_prefix_only(lm: CassandraForCausalLM, file: Path, gamma: int) -> None:
    prepared = parse_method(f"ott-od:table={file}").prepare(lm)
    accepted = 0
    for prompt in PROMPTS:
        tokens, rounds = reply(lm, prompt, Settings(gamma=gamma, max_tokens=24), prepared)
        lengths = accepted_lengths(prepared, prompt, tokens, gamma=gamma, max_tokens=24)
        assert lengths == [each.accepted for each in rounds]
        accepted += sum(lengths)
    assert accepted
    for option in ("copies=yes", "threshold=0.1"):
        other = parse_method(f"ott-od:table={file}:{option}").prepare(lm)
        assert not other.prefix_only


def test_one_decode_replies_without_a_verifier(lm: CassandraForCausalLM, file: Path) -> None:
    texts = [f"ott-od:table={file}:threshold={threshold}" for threshold in (0.3, 1.0)]
    some, never = (parse_method(text).prepare(lm).alone() for text in texts)
    assert some
    assert never
    plain = reply(lm, PROMPTS[0], Settings(max_tokens=12))[0]
    assert never(PROMPTS[0], 12, lm.stop_tokens()) == (plain, len(plain))
    tokens, passes = some(PROMPTS[0], 12, lm.stop_tokens())
    assert 0 < passes < len(tokens)
    assert parse_method(f"ott-od:table={file}:copies=yes").prepare(lm).alone() is None
    with pytest.raises(CassandraError, match="threshold of ott-od must be above 0 without"):
        parse_method(f"ott-od:table={file}").prepare(lm).alone()


def test_a_threshold_ends_the_chain(lm: CassandraForCausalLM, file: Path) -> None:
    drafted = []
    for threshold in ("0", "0.1", "1"):
        prepared = parse_method(f"ott-od:table={file}:threshold={threshold}").prepare(lm)
        rounds = reply(lm, PROMPTS[0], Settings(max_tokens=16), prepared)[1]
        drafted.append(sum(each.drafted for each in rounds) / len(rounds))
    assert drafted[0] > drafted[1] > drafted[2] == 0


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("ott-od", "table must be given with ott-od, and is not"),
        ("ott-swarm:branches=9", "branches must be from 1 to 8, not 9"),
    ],
)
def test_a_wrong_option_is_one_line(lm: CassandraForCausalLM, method: str, message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        parse_method(method).prepare(lm)


def test_one_branch_is_the_chain(lm: CassandraForCausalLM, file: Path) -> None:
    asked = Settings(gamma=4, max_tokens=20)
    swarm, chain = (
        reply(lm, PROMPTS[0], asked, parse_method(f"{method}:table={file}").prepare(lm))
        for method in ("ott-swarm:branches=1", "ott-od")
    )
    assert [each.proposal.nodes for each in swarm[1]] == [each.proposal.nodes for each in chain[1]]


@pytest.mark.parametrize("budget", [6, 99])
def test_more_branches_are_never_accepted_less(file: Path, budget: int) -> None:
    table = NgramTable.load(file, vocabulary=len(WORDS))
    accepted = dict.fromkeys(range(1, 6), 0)
    for text in TEXT:
        for place in range(3, len(text) - 6):
            known = set[object]()
            for branches in accepted:
                drafter = SwarmDrafter(table, 4, branches, frozenset())
                proposal = drafter.propose(text[:place], budget)
                assert proposal.is_chain or branches > 1
                assert len(proposal.nodes) <= budget
                assert known <= set(proposal.nodes)
                known = set(proposal.nodes)
                depths = [0]
                for node in proposal.nodes:
                    depths.append(depths[node.parent + 1] + 1)
                best = [text[place + depth] for depth in depths]
                accepted[branches] += len(accept_greedy(proposal.nodes, best))
    assert list(accepted.values()) == sorted(accepted.values())
    assert accepted[3] > accepted[1]
