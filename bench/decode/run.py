"""The benchmark: models made ready, contenders started, turns taken."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.decode.contenders import PLANS, Contender
from cassandra_spec.bench.decode.gguf_file import write_gguf
from cassandra_spec.bench.decode.probe import memory_speed
from cassandra_spec.bench.decode.results import Turn, Turns, total
from cassandra_spec.bench.decode.weights import Dithered
from cassandra_spec.bench.decode.workers import Worker, llama_program
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import Source

WEIGHTS = ("dequantised", "dithered")
"""The weights as the source has them, and as if they had never been quantised."""


def make_source(source: Source, weights: str) -> Source:
    """Return the source of one set of weights."""
    return source if weights == WEIGHTS[0] else Dithered(source)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Settings shared by all turns."""

    contenders: Sequence[Contender]
    folder: Path  # of models and files, kept for another run
    max_tokens: int
    slow_tokens: int
    threads: int
    llama_python: Path | None
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
                    each.name, self._command(each, weights, source, norms), each.checkout
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
        return [
            each
            for each in self.contenders
            if (each.kind != "llama.cpp" or self.llama_python) and (not each.table or self.table)
        ]

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

    def _command(
        self, contender: Contender, weights: str, source: Source, norms: Norms | None
    ) -> list[str]:
        sizes = [str(self.threads), str(self.context)]
        if contender.kind == "llama.cpp":
            file = self._gguf(contender.weights, weights, source, norms)
            return [*self._llama("serve"), str(file), sizes[1], sizes[0], str(int(contender.flash))]
        packed = self.packed(contender.plan, weights, source, norms)
        table = str(self.table) if contender.table else None
        options = json.dumps({**contender.settings, "table": table})
        module = "cassandra_spec.bench.decode.serve"
        return [sys.executable, "-m", module, str(packed), options, *sizes]

    def packed(self, plan: str, weights: str, source: Source, norms: Norms | None) -> Path:
        """Return a packed model; pack it if it is missing."""
        place = (self.folder / f"{plan}-{weights}").absolute()
        if not place.exists():
            self.say(f"{weights}: packing {plan}")
            pack_model(source, place, PLANS[plan], norms=norms, jobs=self.jobs)
        return place

    def _gguf(self, kind: str, weights: str, source: Source, norms: Norms | None) -> Path:
        """Return a file for llama.cpp; llama.cpp itself converts types other than BF16."""
        plain = (self.folder / f"{weights}-BF16.gguf").absolute()
        if not plain.exists():
            config = read_config(self.packed("exact-4", weights, source, norms))
            write_gguf(source, config, plain)
        file = plain.with_name(f"{weights}-{kind}.gguf")
        if not file.exists():
            part = file.with_suffix(".part")
            command = [*self._llama("quantize"), str(plain), str(part), kind]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode:
                raise CassandraError(f"llama.cpp must quantise to {kind}: {made.stderr[-300:]}")
            part.rename(file)
        return file

    def _llama(self, what: str) -> list[str]:
        assert self.llama_python is not None
        return [*llama_program(self.llama_python), what]
