"""An opened model, and what it replies."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from cassandra_spec.api.opening import (
    BackendName,
    CodecName,
    KeyValues,
    Loading,
    TargetName,
    choose_backend,
    choose_target,
    opening_of,
)
from cassandra_spec.api.structured import Grammar, JsonSchema, grammar_text, with_grammar
from cassandra_spec.drafting.settings import (
    ADAPTIVE,
    Acceptance,
    DraftCache,
    DraftKind,
    Gamma,
    Levels,
    Sampling,
    Settings,
    default_margin,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import Scheme

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Generation, Prompt, Replies, Report, Score
    from cassandra_spec.model.backends import CheckedBackend
    from cassandra_spec.text.grammar import GrammarText

Message = dict[str, Any]


class ReplyOptions(TypedDict, total=False):
    """Options of a reply, by the names of `casspec generate` (and of the server)."""

    max_tokens: int  # length limit (128)
    stop: str | Sequence[str]  # end the reply at these texts, without them
    temperature: float  # 0: greedy, the default
    top_k: int | None  # sample from this number of top tokens
    top_p: float | None  # sample from the most likely tokens with this total probability
    min_p: float | None  # sample from tokens with this fraction of the top probability
    seed: int | None  # for repeatable sampled replies; None: a new one for each reply
    acceptance: Acceptance  # of drafted tokens, under sampling
    plain: bool  # decode with the target only
    logprobs: int | None  # report log-probabilities: the token's, and of this number of top tokens
    json_schema: JsonSchema | None  # restrict the reply to JSON of this schema
    grammar: Grammar | None  # restrict it to a grammar: Lark's text, or a file
    regex: str | None  # restrict it to matches of a regular expression
    raw: bool  # continue the prompt, without a chat template
    system: str | None  # system message before the prompt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """A reply of a model."""

    text: str  # without special tokens, cut before a stop text
    tokens: tuple[int, ...]  # including the final one
    stop_reason: str  # stop_token, stop_string, length or interrupted
    logprobs: tuple[Score, ...]  # of each token, if they were asked for
    figures: Report  # tokens, rounds, acceptance, seconds, bytes (docs/software/runtime.md)

    def __str__(self) -> str:
        return self.text


class Stream:
    """The text of a reply as it comes: an iterator of pieces.

    :attr:`reply` is the reply so far, whole at the end. Leaving the ``with`` block, or
    :meth:`close`, ends the reply early. A model makes one reply at a time.
    """

    def __init__(self, model: Model, replies: Replies, prompt: Prompt) -> None:
        self._pieces = model.pieces(replies, prompt)
        self._replies, self._before = replies, replies.begun

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next piece. Raises :class:`CassandraError`."""
        return next(self._pieces)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the reply."""
        self._pieces.close()

    @property
    def text(self) -> str:
        """The text so far, with what may still become the beginning of a stop text."""
        return self._replies.last_text if self._replies.begun > self._before else ""

    @property
    def reply(self) -> Reply:
        """The reply so far. Raises :class:`CassandraError` before its first token."""
        replies = replies_of(self._replies.generation())[self._before :]
        if not replies:
            raise CassandraError("reply must be read after the first piece of text, not before")
        return replies[0]


class Chat:
    """A conversation with a model; :attr:`messages` are those that the model sees.

    When the context is full the oldest turns are dropped, not the system message.
    """

    def __init__(self, model: Model, **options: Unpack[ReplyOptions]) -> None:
        system = options.pop("system", None)
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self._model, self._turns = model, list[Message]()
        self.replies = model.begin(**options)  # with the figures of the whole conversation
        self._room = model.backend.positions - options.get("max_tokens", Settings.max_tokens)
        if self._room <= 0:
            raise CassandraError(
                f"max_tokens must be below {model.backend.positions:,}, the positions of the"
                f" context, not {options['max_tokens']:,}"
            )
        self.dropped = 0  # messages that the model does not see any more
        self._last: Stream | None = None

    @property
    def messages(self) -> list[Message]:
        """The system message and the turns that the model sees."""
        return [*self._system, *self._turns]

    @property
    def figures(self) -> Report:
        """The figures of all replies so far."""
        return self.replies.generation().report

    def say(self, message: str) -> Reply:
        """Return the reply to the user's next message, as :meth:`stream` does."""
        with self.stream(message) as stream:
            for _ in stream:
                pass
            return stream.reply

    def stream(self, message: str) -> Stream:
        """Begin the reply to the user's next message; the pieces take the model's time.

        Raises :class:`CassandraError` if the message alone exceeds the context; the conversation
        is then as before.
        """
        if self._last is not None:
            self._last.close()
        self._turns = self._fitting([*self._turns, {"role": "user", "content": message}])
        self._last = _ChatStream(self._model, self.replies, self.messages, self._turns)
        return self._last

    def _fitting(self, turns: list[Message]) -> list[Message]:
        """Return the last turns that fit the context, the first by the user."""
        from cassandra_spec.drafting import encode_prompt

        kept, tokenizer = turns, self._model.backend.tokenizer
        while (size := len(encode_prompt(tokenizer, [*self._system, *kept]))) > self._room:
            if len(kept) == 1:
                raise CassandraError(
                    f"the message must be at most {self._room} tokens with the system message,"
                    f" not {size}"
                )
            kept = kept[2:]
        self.dropped += len(turns) - len(kept)
        return kept


class _ChatStream(Stream):
    """A reply that becomes a turn of its conversation when it ends, or is ended early.

    Without a piece of a reply, such as after an error, the user's message is taken back.
    """

    def __init__(
        self, model: Model, replies: Replies, prompt: Prompt, turns: list[Message]
    ) -> None:
        super().__init__(model, replies, prompt)
        self._turns, self._text, self._open = turns, "", True

    def __next__(self) -> str:
        """Return the next piece."""
        try:
            piece = super().__next__()
        except StopIteration:
            self._end()
            raise
        self._text += piece
        return piece

    def close(self) -> None:
        """End the reply."""
        super().close()
        if self._text:
            self._end()
        elif self._open:
            self._open = False
            self._turns.pop()

    def _end(self) -> None:
        if self._open:
            self._open = False
            self._turns.append({"role": "assistant", "content": self._text})


class Model:
    """A packed model, opened by :func:`open_model`; a ``with`` block closes it."""

    backend: CheckedBackend  # what decodes
    loading: Loading  # how it was loaded, without an ``auto``

    def __init__(self, packed: Path, loading: Loading, settings: Settings) -> None:
        from cassandra_spec.model.backends import BACKENDS

        backend, self.backend_reason = choose_backend(packed, loading, settings.gamma)
        chosen = dataclasses.replace(loading, backend=backend)
        self.target_reason = ""
        if backend == "native":
            drafts = settings.gamma != 0 and settings.draft != "none"
            target, self.target_reason = choose_target(packed, chosen, drafts=drafts)
            chosen = dataclasses.replace(chosen, native_target=target)
        self.packed, self.loading, self.settings = packed, chosen, settings
        self._stack, self._free = ExitStack(), Lock()
        opened = BACKENDS[backend](packed, opening_of(packed, chosen), settings)
        self.backend = self._stack.enter_context(opened)

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def close(self) -> None:
        """Free the model's memory; replies cannot be asked for any more."""
        self._stack.close()

    def verify(self) -> None:
        """Check the weights in memory; needs ``verify=True`` when the model was opened.

        Raises :class:`CassandraError` if they have changed.
        """
        self.backend.verify()

    def reply(self, prompt: Prompt, **options: Unpack[ReplyOptions]) -> Reply:
        """Return the reply to a text of the user, or to the messages of a chat.

        Raises :class:`CassandraError` for bad options, and for a prompt beyond the context.
        """
        return self.replies([prompt], **options)[0]

    def replies(self, prompts: Sequence[Prompt], **options: Unpack[ReplyOptions]) -> list[Reply]:
        """Return the reply to each prompt, decoded side by side if ``open`` got a ``batch``.

        Each reply is what :meth:`reply` returns for its prompt, with the same tokens.
        """
        asked = [with_system(prompt, options.get("system")) for prompt in prompts]
        replies = self.begin(**options)
        with self._turn():
            if self.loading.batch > 1:
                replies.run_together(asked, _ignore)
            else:
                replies.run(asked, _ignore)
        return replies_of(replies.generation())

    def stream(self, prompt: Prompt, **options: Unpack[ReplyOptions]) -> Stream:
        """Begin the reply to a prompt; return its text as an iterator of pieces."""
        return Stream(self, self.begin(**options), with_system(prompt, options.get("system")))

    def pieces(self, replies: Replies, prompt: Prompt) -> Generator[str, None, None]:
        """Yield the pieces of a reply, during which the model makes no other."""
        with self._turn():
            yield from replies.pieces(prompt)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            raise CassandraError(
                "a reply must begin after the end of the model's last one: read its stream to the"
                " end, or close it"
            )
        try:
            yield
        finally:
            self._free.release()

    def chat(self, **options: Unpack[ReplyOptions]) -> Chat:
        """Begin a conversation."""
        return Chat(self, **options)

    def begin(self, backend: Backend | None = None, **options: Unpack[ReplyOptions]) -> Replies:
        """Return replies with shared figures, readable after an interrupt.

        ``backend`` replaces the model's own, such as one that records.
        """
        from cassandra_spec.drafting import Replies

        raw = options.get("raw", False)
        return Replies(backend or self.backend, self.settings_of(**options), raw=raw)

    def settings_of(self, **options: Unpack[ReplyOptions]) -> Settings:
        """Return the settings of a reply with these options. Raises :class:`CassandraError`."""
        settings, grammar = reply_settings(self.settings, **options)
        return with_grammar(settings, grammar, self.backend)


def reply_settings(
    settings: Settings,
    *,
    max_tokens: int = Settings.max_tokens,
    stop: str | Sequence[str] = (),
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    acceptance: Acceptance = "noise",
    plain: bool = False,
    logprobs: int | None = None,
    json_schema: JsonSchema | None = None,
    grammar: Grammar | None = None,
    regex: str | None = None,
    raw: bool = False,
    system: str | None = None,
) -> tuple[Settings, GrammarText | None]:
    """Return a model's settings with the options of a reply, and the grammar that they ask for.

    Raises :class:`CassandraError`.
    """
    if raw and system is not None:
        raise CassandraError("system must be left out with raw")
    chosen = dataclasses.replace(
        settings,
        gamma=0 if plain else settings.gamma,
        max_tokens=max_tokens,
        stop_strings=(stop,) if isinstance(stop, str) else tuple(stop),
        sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p),
        acceptance=acceptance,
        logprobs=logprobs,
        seed=seed,
    )
    return chosen, grammar_text(json_schema, grammar, regex)


def open_model(
    packed: Path | str,
    *,
    backend: BackendName = "auto",
    codec: CodecName = "auto",
    native_target: TargetName = "bf16",
    threads: int | None = None,
    context: int | None = None,
    memory_limit: int | None = None,
    batch: int = 1,
    table: Path | str | None = None,
    kv: KeyValues | Scheme | None = None,
    verify: bool = False,
    gamma: Gamma = ADAPTIVE,
    draft: DraftKind = "hybrid",
    min_margin: float | None = None,
    levels: Levels = Levels(),  # noqa: B008  # frozen
    draft_cache: DraftCache = DraftCache(),  # noqa: B008  # frozen
) -> Model:
    """Open a packed model.

    Args:
        packed: the directory that :func:`cassandra_spec.pack` has written.
        backend: ``native``, the C++ engine; ``torch``; or ``auto``, the engine if it can.
        codec: codec of the torch backend: ``auto``, ``golden`` or ``rtl``.
        native_target: form of the engine's target: ``bf16``, ``packed12``, ``planes`` or ``auto``.
        threads: threads of the engine; None: all processors.
        context: most positions of a prompt and its reply; None: the model's own.
        memory_limit: MB of the engine; a larger target is in planes, or read from the file.
        batch: prompts that :meth:`Model.replies` decodes at once (the engine; at most 16).
        table: n-gram table of ``casspec bake-table``.
        kv: format of the KV cache: a scheme, or :class:`KeyValues`; None: BF16.
        verify: keep checksums of the weights in memory, for :meth:`Model.verify`.
        gamma: draft length, or ``adaptive``.
        draft: what drafts: ``hybrid``, ``model``, ``lookup`` or ``none``.
        min_margin: stop drafting after a token with a smaller margin; None: the best known.
        levels: settings of the low drafters.
        draft_cache: part of the KV cache that drafts read.

    Raises:
        CassandraError: an option, or the directory, is not as it must be.
        OSError: a file cannot be read.
    """
    margin = default_margin(gamma) if min_margin is None else min_margin
    settings = Settings(
        gamma=gamma, draft=draft, min_margin=margin, levels=levels, draft_cache=draft_cache
    )
    loading = Loading(
        backend=backend,
        codec=codec,
        native_target=native_target,
        threads=threads,
        context=context,
        memory_limit=memory_limit,
        batch=batch,
        table=None if table is None else Path(table),
        kv=KeyValues(scheme=kv) if isinstance(kv, str) else kv,
        verify=verify,
    )
    return Model(Path(packed), loading, settings)


def replies_of(generation: Generation) -> list[Reply]:
    """Return the replies that have begun, one by one."""
    parts = (generation.texts, generation.tokens, generation.stop_reasons)
    return [
        Reply(text=text, tokens=tokens, stop_reason=reason, logprobs=scores, figures=report)
        for text, tokens, reason, scores, report in zip(
            *parts, generation.scores, generation.reports, strict=True
        )
    ]


def with_system(prompt: Prompt, system: str | None) -> Prompt:
    """Put a system message before a prompt."""
    if system is None:
        return prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return [{"role": "system", "content": system}, *messages]


def _ignore(number: int, text: str) -> None:
    """Do nothing with a piece of text."""
