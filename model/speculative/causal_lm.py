"""A packed model that generates: one network, whose linear layers are draft or target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.utils import GENERATION_CONFIG_NAME

from cassandra_spec.drafting import (
    ADAPTIVE,
    Batch,
    Candidates,
    Costs,
    Counters,
    DraftCache,
    DrafterFactory,
    DraftKind,
    Gamma,
    Generation,
    Node,
    ReadBytes,
    Replies,
    ReplyText,
    Report,
    Score,
    SessionRuntime,
    Settings,
    check_room,
    default_margin,
    encode_prompt,
    fixed_plan,
    make_drafter,
    make_report,
    reply_rounds,
    stop_tokens,
)
from cassandra_spec.drafting.sessions import MAX_PLANNED_NODES, SCORED_ROWS
from cassandra_spec.golden import CassandraError, Codec, Encoder, GoldenCodec
from cassandra_spec.golden.checksums import Checksums
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_config import read_stop_tokens
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.pretrained import load_transformers_tokenizer
from cassandra_spec.model.reply import build_model, packed_reader
from cassandra_spec.model.speculative.arguments import Request, read_request
from cassandra_spec.model.speculative.key_values import KeyValueCache, KeyValueFormat
from cassandra_spec.model.speculative.linear import Mode, ProductsFactory, decoded
from cassandra_spec.model.speculative.loading import (
    network_costs,
    pack_layers,
    weights_in_memory,
)
from cassandra_spec.model.speculative.memory import model_memory
from cassandra_spec.model.speculative.passes import run_pass
from cassandra_spec.model.speculative.processing import AllowedTokens, RowProcessor, stacked
from cassandra_spec.model.speculative.rotary import fix_angles
from cassandra_spec.model.speculative.tiles import ROWS
from cassandra_spec.model.speculative.trees import TreePasses
from cassandra_spec.native.memory import require_memory

_FLOAT32_PER_BF16 = 2


class ReplyInterrupted(KeyboardInterrupt):
    """Ctrl-C while replies were generated; ``generation`` has the replies so far."""

    def __init__(self, generation: Generation) -> None:
        super().__init__()
        self.generation = generation


class ModelSession(TreePasses):
    """Draft and target of one sequence on one cache
    (:class:`cassandra_spec.drafting.Session`).
    """

    def __init__(
        self, network: Any, mode: Mode, cache: KeyValueCache, weights: ReadBytes, rows: int
    ) -> None:
        super().__init__(network, cache, rows)
        self._mode = mode
        self.weights = weights
        self.commit = cache.commit
        self.reads = cache.reads
        self.stored = cache.stored

    def prompt(self, tokens: Sequence[int]) -> torch.Tensor:
        """Compute the target's logits of the last token of a prompt."""
        return run_pass(self.network, self.cache, tokens, 0, rows=self.rows, last=1)

    def target(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """Compute the target's logits of a tree."""
        return self.run(pending, nodes, position)

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """Compute the draft view's logits of a tree."""
        with self._mode.drafting():
            return self.run(pending, nodes, position, draft=True)


class CassandraForCausalLM:
    """A packed model with its tokenizer, loaded through transformers' own model classes.

    Draft and target share everything but the products of packed matrices. ``network`` is the
    transformers model, ``tokenizer`` its tokenizer (None: text is not wanted), ``costs`` what its
    passes read, ``stops`` the tokens that end its replies.
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        *,
        mode: Mode,
        costs: Costs,
        rows: int = ROWS,
        kv: KeyValueFormat | None = None,
        codec: Codec | None = None,
        encoder: Encoder | None = None,
        table: Candidates | None = None,
        verify: bool = False,
        stops: frozenset[int] = frozenset(),
        folder: Path = Path(),
        context: int | None = None,
    ) -> None:
        if rows < 1:
            raise CassandraError(f"rows must be at least 1, not {rows}")
        if kv is not None:
            kv.check_rows(rows)
        self.network = network
        self.tokenizer = tokenizer
        self.costs = costs
        self.kv = kv
        self.table = table  # n-grams for the low drafter
        self.folder = folder  # where the packed model lies
        self.report: Report | None = None  # figures of the last generate()
        self.mode = mode
        self.use_context(context)
        self._rows = rows
        self._codec = GoldenCodec() if codec is None else codec
        self._encoder = encoder
        self._checksums = Checksums(weights_in_memory(network)) if verify else None
        self._stops = stops

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        codec: Codec | None = None,
        encoder: Encoder | None = None,
        products: ProductsFactory | None = None,
        kv: KeyValueFormat | None = None,
        rows: int = ROWS,
        table: Candidates | None = None,
        verify: bool = False,
        context: int | None = None,
    ) -> CassandraForCausalLM:
        """Load a packed directory; every region is checked against its checksum.

        Target values come through ``codec`` (golden's by default); so do draft values, unless
        ``products`` makes the products of a matrix in another way, and keys and values, if ``kv``
        says how they are packed (None: they stay in BF16); ``encoder`` packs them (golden's by
        default). ``rows`` is the size of the tiles of
        :mod:`cassandra_spec.model.speculative.passes`, ``table`` one of n-grams for low drafters.
        With ``verify``, checksums of the weights in memory are kept for :meth:`verify`; ``context``
        is as for :meth:`use_context`. Raises :class:`CassandraError` and ``OSError``.
        """
        folder = Path(path)
        read_stop_tokens(folder)
        codec = GoldenCodec() if codec is None else codec
        packed = open_packed(folder)
        require_memory(model_memory(packed, products=2 if products is None else 1), str(folder))
        network = build_model(folder, packed_reader(packed, codec.decode_target))
        if (folder / GENERATION_CONFIG_NAME).exists():
            network.generation_config = GenerationConfig.from_pretrained(folder)
        tokenizer = load_transformers_tokenizer(folder)
        return cls.of_network(
            network,
            packed,
            tokenizer,
            stops=stop_tokens(tokenizer, folder),
            codec=codec,
            products=products,
            encoder=encoder,
            kv=kv,
            rows=rows,
            table=table,
            verify=verify,
            folder=folder,
            context=context,
        )

    @classmethod
    def of_network(
        cls,
        network: Any,
        packed: PackedFile,
        tokenizer: Any,
        *,
        codec: Codec,
        products: ProductsFactory | None = None,
        **options: Any,
    ) -> CassandraForCausalLM:
        """Give a transformers model with the target values of a packed file its draft, too.

        ``codec`` and ``products`` are as for :meth:`from_pretrained`, ``options`` as for the class.
        """
        mode = Mode()
        pack_layers(network, packed, mode, products or decoded(codec))
        costs = network_costs(network, packed)
        return cls(
            network,
            tokenizer,
            mode=mode,
            costs=costs,
            codec=codec,
            **options,
        )

    def verify(self) -> None:
        """Check the weights in memory against the checksums that were kept when they were loaded.

        Raises :class:`CassandraError` with the tensor.
        """
        if self._checksums is None:
            raise CassandraError("verify must be true of a model whose weights are to be checked")
        self._checksums.check(weights_in_memory(self.network))

    @property
    def positions(self) -> int:
        """Maximum length of a sequence, prompt and reply."""
        return self._reach.positions

    def use_context(self, context: int | None) -> None:
        """Set the number of positions of a sequence; None: the model's default.

        The rotary embeddings ``longrope`` and ``dynamic`` have other angles, at all positions, for
        a context beyond their own. Sequences that have begun are lost. Raises
        :class:`CassandraError` if the model does not go so far.
        """
        self._reach = fix_angles(self.network, context)

    def session(
        self,
        capacity: int,
        *,
        kv: KeyValueFormat | None = None,
        codec: Codec | None = None,
        encoder: Encoder | None = None,
        draft_cache: DraftCache | None = None,
    ) -> ModelSession:
        """Make draft and target of one sequence of at most ``capacity`` positions.

        ``kv`` says how keys and values are packed, ``encoder`` and ``codec`` by whom, if not as for
        the model. ``draft_cache`` says what draft passes see of them (by default everything).
        """
        check_room(capacity, context=self.positions, longest=self._reach.longest)
        kv = self.kv if kv is None else kv
        self._require_cache(capacity, kv)
        codec = self._codec if codec is None else codec
        encoder = self._encoder if encoder is None else encoder
        cache = KeyValueCache(capacity, kv, codec, encoder, draft_cache)
        return ModelSession(self.network, self.mode, cache, self.costs.weights, self._rows)

    def _require_cache(self, positions: int, kv: KeyValueFormat | None) -> None:
        """Raise if a cache of this many positions exceeds the available memory."""
        copies = _FLOAT32_PER_BF16 * (1 if kv is None else 2)
        require_memory(
            copies * positions * self.costs.position, f"a cache of {positions} positions"
        )

    def passes(self, positions: int) -> Callable[[Sequence[int], int, int], NDArray[np.float32]]:
        """Return passes of the target over one sequence
        (:data:`cassandra_spec.model.backends.Pass`).
        """
        session = self.session(positions)

        def run(tokens: Sequence[int], position: int, last: int) -> NDArray[np.float32]:
            logits = run_pass(
                session.network, session.cache, tokens, position, rows=self._rows, last=last
            )
            return logits.numpy()

        return run

    def rounds(
        self,
        prompt: Sequence[int],
        settings: Settings,
        counters: Counters,
        *,
        ends: Callable[[int], bool] = lambda token: False,
        make: DrafterFactory = make_drafter,
        scores: list[Score] | None = None,
    ) -> Iterator[list[int]]:
        """Yield the tokens of a reply to a prompt (tokens, at least one) round by round.

        Stop strings are not looked for; ``ends``, ``make`` and ``scores`` are as for
        :func:`cassandra_spec.drafting.decode`.
        """
        runtime = SessionRuntime(self._reply_session, make=make, table=self.table)
        return reply_rounds(Batch(runtime, counters), prompt, settings, ends=ends, scores=scores)

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Batch:
        """Return one sequence at a time; no keys and values are kept between replies."""
        return Batch(SessionRuntime(self._reply_session, table=self.table), counters)

    def _reply_session(self, prompt: Sequence[int], settings: Settings) -> ModelSession:
        """Return a session for a reply to a prompt, after validation."""
        vocabulary = self.network.config.vocab_size
        if not prompt or not 0 <= min(prompt) <= max(prompt) < vocabulary:
            raise CassandraError(
                f"prompt must have at least one token, all from 0 to below {vocabulary}"
            )
        if self.kv is not None:
            adaptive = settings.gamma == ADAPTIVE
            rows = fixed_plan(settings, MAX_PLANNED_NODES if adaptive else int(settings.gamma)).rows
            self.kv.check_nodes(min(rows, MAX_PLANNED_NODES) if adaptive else rows)
            self.kv.check_nodes(SCORED_ROWS - 1 if settings.prompt_logprobs else 0)
        return self.session(len(prompt) + settings.max_tokens, draft_cache=settings.draft_cache)

    def stream(
        self, prompt: Sequence[int], settings: Settings, counters: Counters
    ) -> Iterator[int]:
        """Yield the tokens of a reply one by one; arguments are those of :meth:`rounds`."""
        for emitted in self.rounds(prompt, settings, counters):
            yield from emitted

    def reply(
        self,
        prompts: Sequence[str],
        settings: Settings,
        *,
        on_text: Callable[[int, str], object] = lambda reply, text: None,
    ) -> Generation:
        """Reply to each prompt on its own, with the chat template if the model has one.

        The model's own stop tokens are added to those of ``settings``. ``on_text`` is called with
        the number of the reply and each new piece of its text. Ctrl-C raises
        :class:`ReplyInterrupted` with the replies so far.
        """
        replies = Replies(self, settings)
        try:
            replies.run(prompts, on_text)
        except KeyboardInterrupt as error:
            raise ReplyInterrupted(replies.generation()) from error
        return replies.generation()

    def make_report(self, counters: Counters, settings: Settings) -> Report:
        """Report the figures of counters over replies with some settings, with the traffic."""
        return make_report(counters, settings, costs=self.costs)

    def generate(
        self,
        inputs: torch.Tensor | Sequence[Any] | None = None,
        generation_config: GenerationConfig | None = None,
        *,
        input_ids: torch.Tensor | Sequence[Any] | None = None,
        attention_mask: torch.Tensor | Sequence[Any] | None = None,
        streamer: Any = None,
        stopping_criteria: Sequence[Callable[..., Any]] | None = None,
        tokenizer: Any = None,
        logits_processor: Sequence[Any] | None = None,
        prefix_allowed_tokens_fn: AllowedTokens | None = None,
        gamma: Gamma = ADAPTIVE,
        draft: DraftKind = "hybrid",
        min_margin: float | None = None,
        seed: int | None = None,
        **arguments: Any,
    ) -> Any:
        """Return token ids of prompts and replies, int64 [batch, length], as transformers does.

        With ``return_dict_in_generate`` they are ``sequences`` of a
        :class:`~transformers.generation.GenerateDecoderOnlyOutput`, beside ``scores`` and
        ``logits`` if these are asked for.

        The arguments are those of transformers' ``generate()``: ``inputs`` (or ``input_ids``) are
        prompts [batch, width], padded on the left and masked by ``attention_mask``; the others are
        those of a :class:`transformers.GenerationConfig`. Each reply is token for token what it
        would be alone. ``stopping_criteria`` are asked after each token, without scores, and
        ``logits_processor`` about each token of one reply after another. ``gamma``,
        ``draft``, ``min_margin`` and ``seed`` are as in :class:`Settings`, and the fields of
        :class:`Levels` are arguments, too; without a
        ``seed``, samples follow torch's own. ``report`` of this object holds the figures
        afterwards. What is not supported is refused: :class:`CassandraError` names it.
        """
        if (inputs is None) == (input_ids is None):
            raise CassandraError("input_ids must be given, once")
        request = read_request(
            self.network.generation_config,
            generation_config,
            arguments,
            ids=input_ids if inputs is None else inputs,  # type: ignore[arg-type]
            attention_mask=attention_mask,
            longest=self.positions,
            gamma=gamma,
            draft=draft,
            min_margin=default_margin(gamma) if min_margin is None else min_margin,
            seed=seed,
            processors=logits_processor or (),
            allowed=prefix_allowed_tokens_fn,
        )
        prompts, most = request.prompts, request.settings.max_tokens
        self._require_cache(sum(map(len, prompts)) + len(prompts) * most, self.kv)
        if streamer is not None and len(prompts) > 1:
            raise CassandraError("streamer must not be given with more than one prompt")
        tokenizer = tokenizer or self.tokenizer
        if tokenizer is None and request.settings.stop_strings:
            raise CassandraError("tokenizer must be given with stop_strings, and is not")
        counters = Counters()
        rows = [
            request.processing.of_row(self.network, number, ids, len(ids) - len(prompt))
            for number, (ids, prompt) in enumerate(zip(request.ids, prompts, strict=True))
        ]
        settings = [
            dataclasses.replace(
                _seeded(request.settings, number % request.copies), processors=row.in_settings
            )
            for number, row in enumerate(rows)
        ]
        replies = self._replies(
            request, settings, tokenizer, streamer, counters, stopping_criteria or ()
        )
        self.report = self.make_report(counters, request.settings)
        return _output(request, replies, rows)

    def _replies(
        self,
        request: Request,
        settings: Sequence[Settings],
        tokenizer: Any,
        streamer: Any,
        counters: Counters,
        criteria: Sequence[Callable[..., Any]],
    ) -> list[list[int]]:
        """Run a round of each reply in turn until all have ended."""
        texts = [ReplyText(tokenizer, request.settings.stop_strings) for _ in request.prompts]
        running = {
            number: self.rounds(prompt, own, counters, ends=_ends(prompt, text, criteria))
            for number, (prompt, own, text) in enumerate(
                zip(request.prompts, settings, texts, strict=True)
            )
        }
        _put(streamer, request.ids)
        while running:
            for number, rounds in list(running.items()):
                emitted = next(rounds, None)
                if emitted is None:
                    del running[number]
                else:
                    _put(streamer, torch.tensor(emitted))
        if streamer is not None:
            streamer.end()
        return [text.tokens for text in texts]

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encode a prompt, in the chat template if the model has one."""
        return encode_prompt(self.tokenizer, prompt)

    def stop_tokens(self) -> frozenset[int]:
        """Return the tokens that end a reply, by the tokenizer and the model's files."""
        return self._stops


def _seeded(settings: Settings, copy: int) -> Settings:
    """Add a seed from torch if replies are sampled and the settings have no seed.

    Replies to the same prompt (``copy``) have one seed after another.
    """
    if settings.sampling.temperature == 0:
        return settings
    if settings.seed is not None:
        return dataclasses.replace(settings, seed=settings.seed + copy)
    return dataclasses.replace(settings, seed=int(torch.randint(2**62, ())))


def _ends(
    prompt: Sequence[int], text: ReplyText, criteria: Sequence[Callable[..., Any]]
) -> Callable[[int], bool]:
    """Return a function that tests stop strings and transformers' stopping criteria."""

    def ends(token: int) -> bool:
        stopped = text.add(token)
        ids = torch.tensor([[*prompt, *text.tokens]]) if criteria else None
        return any([stopped, *(bool(torch.as_tensor(ask(ids, None)).all()) for ask in criteria)])

    return ends


def _put(streamer: Any, tokens: torch.Tensor) -> None:
    if streamer is not None:
        streamer.put(tokens)


def _output(
    request: Request, replies: Sequence[Sequence[int]], rows: Sequence[RowProcessor]
) -> Any:
    """Build the result of :meth:`CassandraForCausalLM.generate`."""
    sequences = _padded(request, replies)
    if request.outputs is None:
        return sequences
    outputs = {
        name: stacked(
            [
                getattr(row.recorded, name)[: len(reply)]
                for row, reply in zip(rows, replies, strict=True)
            ],
            request.pad_token,
        )
        for name in request.outputs
    }
    return GenerateDecoderOnlyOutput(sequences=sequences, **outputs)  # type: ignore[arg-type]


def _padded(request: Request, replies: Sequence[Sequence[int]]) -> torch.Tensor:
    """Join prompts and replies, padded on the right."""
    width = max(map(len, replies))
    rows = [[*reply, *[request.pad_token] * (width - len(reply))] for reply in replies]
    return torch.cat([request.ids, torch.tensor(rows, dtype=torch.int64)], dim=1)
