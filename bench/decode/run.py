"""The benchmark: models made ready, contenders started, turns taken."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.decode.contenders import PLANS, Contender
from cassandra_spec.bench.decode.probe import memory_speed
from cassandra_spec.bench.decode.results import Turn, Turns, total
from cassandra_spec.bench.decode.workers import Worker
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import Source

DEQUANTISED = "dequantised"
"""The weights as the source has them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings shared by all turns."""

    contenders: Sequence[Contender]
    folder: Path  # of models and files, kept for another run
    max_tokens: int
    slow_tokens: int
    threads: int
    table: Path | None  # of n-grams
    jobs: int | None
    say: Callable[[str], object]
    rounds: Sequence[Sequence[Sequence[int]]] = ()  # prompts of each
    stops: Sequence[int] = ()
    context: int = 0  # positions that must fit

    def run(self, weights: str, source: Source, norms: Norms | None, turns: Turns) -> None:
        """Run all pending turns of one set of weights."""
        contenders = self.able()
        places = [(each.name, number) for each in contenders for number in range(len(self.rounds))]
        if all((weights, name, number) in turns for name, number in places):
            return
        with contextlib.ExitStack() as stack:
            workers = {}
            for each in contenders:
                worker = Worker(
                    each.name, self.command(each, weights, source, norms), each.checkout
                )
                workers[each.name] = stack.enter_context(worker)
                self.say(f"{weights}: {each.name} is ready")
            self._warm(workers, contenders)
            for number in range(len(self.rounds)):
                first = number % len(contenders)  # each round begins with another one
                for each in [*contenders[first:], *contenders[:first]]:
                    if (weights, each.name, number) not in turns:
                        speed = memory_speed(self.threads)
                        turn = self._turn(weights, each, workers[each.name], number, speed)
                        turns.add(turn)
                        self.say(f"{weights}: round {number + 1}: {each.name}: {turn.rate:.1f}")

    def able(self) -> list[Contender]:
        """Return the contenders whose requirements are met."""
        return [each for each in self.contenders if self.table or not each.table]

    def _warm(self, workers: Mapping[str, Worker], contenders: Sequence[Contender]) -> None:
        """Let each decode a little, untimed."""
        for each in contenders:
            tokens = 2 if each.slow else min(24, self.max_tokens)
            workers[each.name].ask(self._request(self.rounds[0][0], tokens))

    def _request(self, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        return {"prompt": list(prompt), "max_tokens": tokens, "stops": list(self.stops)}

    def _turn(
        self, weights: str, contender: Contender, worker: Worker, number: int, speed: float
    ) -> Turn:
        prompts = self.rounds[number]
        tokens = self.slow_tokens if contender.slow else self.max_tokens
        some = prompts[:1] if contender.slow else prompts
        answers = [worker.ask(self._request(prompt, tokens)) for prompt in some]
        return Turn(
            weights=weights,
            contender=contender.name,
            round=number,
            replies=tuple(tuple(answer["tokens"]) for answer in answers),
            seconds=sum(answer["seconds"] for answer in answers),
            first=sum(answer["first"] for answer in answers),
            prompt=sum(map(len, some)),
            probe=speed,
            resident=worker.resident,
            held=worker.about.get("bytes"),
            drafted=total([answer.get("drafted") for answer in answers]),
            accepted=total([answer.get("accepted") for answer in answers]),
            plans=answers[-1].get("plans", {}),
            times=tuple(tuple(answer.get("times", ())) for answer in answers),
        )

    # --- models -------------------------------------------------------------------------------

    def command(
        self, contender: Contender, weights: str, source: Source, norms: Norms | None
    ) -> list[str]:
        """Return the command of a worker; pack its model if it is missing."""
        packed = self.packed(contender.plan, weights, source, norms)
        table = str(self.table) if contender.table else None
        options = json.dumps({**contender.settings, "table": table})
        program = [sys.executable, "-m", contender.program, str(packed), options]
        return [*program, str(self.threads), str(self.context)]

    def packed(self, plan: str, weights: str, source: Source, norms: Norms | None) -> Path:
        """Return a packed model; pack it if it is missing."""
        place = (self.folder / f"{plan}-{weights}").absolute()
        if not place.exists():
            self.say(f"{weights}: packing {plan}")
            pack_model(source, place, PLANS[plan], norms=norms, jobs=self.jobs)
        return place
