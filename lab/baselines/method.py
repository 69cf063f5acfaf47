"""Define a draft method: options, checks, and drafters for the replies of one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from cassandra_spec.drafting import (
    GREEDY,
    Candidates,
    Drafter,
    DraftPass,
    Settings,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines.costs import NOTHING, NetworkSize, PassCost
from cassandra_spec.model.speculative import CassandraForCausalLM

Speaker = Callable[[Sequence[int], int, frozenset[int]], tuple[list[int], int]]
"""Replies to a prompt, given a token limit and stop tokens; also returns the number of passes."""

METHODS: dict[str, type[Method]] = {}
"""Methods by name, as far as their files are imported."""


class Prepared:
    """A method made ready for one model: gives each reply a drafter of its own.

    The defaults are those of a method without passes, whose target is read in BF16.
    """

    def __init__(
        self, lm: CassandraForCausalLM, *, memory: int = 0, training_seconds: float = 0.0
    ) -> None:
        self.memory = memory  # bytes beside those of the target
        self.training_seconds = training_seconds
        self.prefix_only = False  # each drafted token depends on the tokens before it alone
        self.about = ""  # notes of the preparation, for reports
        self._target = NetworkSize.of(lm.network)

    def drafter(
        self,
        session: Any,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        """Make the drafter of one reply (a :data:`cassandra_spec.drafting.DrafterFactory`)."""
        raise NotImplementedError

    def draft_cost(self, position: int, drafted: DraftPass) -> PassCost:
        """Return the cost of a draft pass of a round at ``position``."""
        return NOTHING

    def verify_cost(self, position: int, nodes: int) -> PassCost:
        """Return the cost of verifying ``nodes`` nodes in a round at ``position``."""
        return self._target.cost(position, 1 + nodes)

    def predictions(self, tokens: Sequence[int], last: int) -> list[int]:
        """Predict the token after each of the ``last`` ones in one teacher-forced pass, bit for
        bit as the loop does; for ``prefix_only`` drafts.
        """
        raise NotImplementedError

    def predicted(self, tokens: Sequence[int], last: int) -> list[int]:
        """Predict the same tokens by larger products, if supported; near ties may differ."""
        return self.predictions(tokens, last)

    def chain_length(self, tokens: Sequence[int], most: int) -> int | None:
        """Return the length, at most ``most``, of the chain that a round after ``tokens`` would
        draft; None if only passes can tell.
        """
        return None

    def alone(self) -> Speaker | None:
        """Greedy replies that nothing verifies; None if the method has none."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """Options of a draft method; its fields are what may be written after its name.

    ``class Skip(Method, name="skip")`` makes it known. A field is int, float, bool, str, Path, a
    Literal, or a tuple of one of these; ``__post_init__`` refuses bad values in one line.
    """

    name: ClassVar[str]
    greedy_only: ClassVar[bool] = False  # drafts trees, which Eq. 1 cannot verify
    compared: ClassVar[tuple[str, ...]] = ()  # default contenders of `casspec compare`
    claim: ClassVar[str] = ""  # of the paper, for the table of claims

    def __init_subclass__(cls, *, name: str = "", **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if name:
            cls.name = name
            METHODS[name] = cls

    def check(self, settings: Settings) -> None:
        """Refuse settings that the method cannot draft for, in one line."""
        if self.greedy_only and settings.sampling != GREEDY:
            temperature = settings.sampling.temperature
            raise CassandraError(f"temperature must be 0 with {self.name}, not {temperature}")

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Refuse a model that the options, or the files they name, do not fit, in one line.

        It is quick: of several methods, all are checked before any is prepared.
        """

    def prepare(self, lm: CassandraForCausalLM) -> Prepared:
        """Check the options against a model and make ready what its replies share.

        Raises :class:`CassandraError` as :meth:`check_model` does, before anything long begins.
        """
        raise NotImplementedError
