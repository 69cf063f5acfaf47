"""A packed model that generates: one network, whose linear layers are draft or target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from golden import CassandraError, Codec, GoldenCodec
from golden.file import PackedFile
from model.architectures import EMBEDDING, HEAD
from model.packing import open_packed
from model.reply import build_model, packed_reader
from model.sources import read_config
from model.speculative.key_values import KeyValueCache, KeyValueFormat, ReadBytes
from model.speculative.linear import Mode, PackedLinear, ProductsFactory, decoded
from model.speculative.loop import Settings, decode
from model.speculative.passes import ATTENTION, run_pass
from model.speculative.report import Costs, Report, Tally, make_report
from model.speculative.tiles import ROWS

__all__ = ["CassandraForCausalLM", "Generation"]

_BF16_BYTES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """Replies to prompts, and the figures over all of them."""

    texts: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]  # of each reply, the one that ended it included
    report: Report


class _Session:
    """Draft and target of one sequence on one cache (:class:`model.speculative.Session`)."""

    def __init__(self, network: Any, mode: Mode, cache: KeyValueCache, rows: int) -> None:
        self._network = network
        self._mode = mode
        self._rows = rows
        self.cache = cache
        self.settle = cache.settle
        self.reads = cache.reads
        self.stored = cache.stored

    def target(self, tokens: Sequence[int], position: int, *, last: int) -> torch.Tensor:
        return run_pass(self._network, self.cache, tokens, position, rows=self._rows, last=last)

    def draft(self, tokens: Sequence[int], position: int) -> torch.Tensor:
        with self._mode.drafting():
            return run_pass(
                self._network, self.cache, tokens, position, rows=self._rows, last=1, draft=True
            )


class CassandraForCausalLM:
    """A packed model with its tokenizer, loaded through transformers' own model classes.

    Draft and target share everything but the products of packed matrices. ``network`` is the
    transformers model, ``tokenizer`` its tokenizer, ``costs`` what its passes read.
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
    ) -> None:
        if rows < 1:
            raise CassandraError(f"rows must be at least 1, not {rows}")
        if kv is not None:
            kv.check_rows(rows)
        network.config._attn_implementation = ATTENTION
        self.network = network
        self.tokenizer = tokenizer
        self.costs = costs
        self.kv = kv
        self.mode = mode
        self._rows = rows
        self._codec = GoldenCodec() if codec is None else codec

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        codec: Codec | None = None,
        products: ProductsFactory | None = None,
        kv: KeyValueFormat | None = None,
        rows: int = ROWS,
    ) -> CassandraForCausalLM:
        """Load a packed directory.

        Target values come through ``codec`` (golden's by default); so do draft values, unless
        ``products`` makes the products of a matrix in another way, and keys and values, if ``kv``
        says how they are packed (None: they stay in BF16). ``rows`` is the size of the tiles of
        :mod:`model.speculative.passes`. Raises :class:`CassandraError` and ``OSError``.
        """
        folder = Path(path)
        read_config(folder)
        codec = GoldenCodec() if codec is None else codec
        packed = open_packed(folder)
        network = build_model(folder, packed_reader(packed, codec.decode_target))
        mode = Mode()
        _pack_layers(network, packed, mode, products or decoded(codec))
        costs = _costs(network, packed)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return cls(network, tokenizer, mode=mode, costs=costs, rows=rows, kv=kv, codec=codec)

    def costs_of(self, packed: PackedFile) -> Costs:
        """What passes would read if the weights were those of another packing of this model."""
        return _costs(self.network, packed)

    def drafting(self) -> AbstractContextManager[None]:
        """Make the network the draft within a block."""
        return self.mode.drafting()

    def session(self, capacity: int, *, kv: KeyValueFormat | None = None) -> _Session:
        """Draft and target for one sequence of at most ``capacity`` positions.

        ``kv`` says how keys and values are packed, if not as for the model.
        """
        longest = self.network.config.max_position_embeddings
        if capacity > longest:
            raise CassandraError(
                f"prompt and reply must fit the model's {longest} positions, not need {capacity}"
            )
        cache = KeyValueCache(capacity, self.kv if kv is None else kv, self._codec)
        return _Session(self.network, self.mode, cache, self._rows)

    def stream(self, prompt: Sequence[int], settings: Settings, tally: Tally) -> Iterator[int]:
        """Yield the tokens of the reply to a prompt (tokens, at least one) as they are settled."""
        if not prompt:
            raise CassandraError("prompt must have at least one token")
        if self.kv is not None:
            self.kv.check_gamma(settings.gamma)
        session = self.session(len(prompt) + settings.max_tokens)
        for settled in decode(session, prompt, settings, tally):
            yield from settled

    def generate(
        self,
        prompts: Sequence[str],
        settings: Settings,
        *,
        on_text: Callable[[int, str], object] = lambda reply, text: None,
    ) -> Generation:
        """Reply to each prompt on its own, with the chat template if the model has one.

        The model's own stop tokens are added to those of ``settings``. ``on_text`` is called with
        the number of the reply and each new piece of its text.
        """
        settings = dataclasses.replace(
            settings, stop_tokens=settings.stop_tokens | self.stop_tokens()
        )
        tally = Tally()
        texts, replies = [], []
        for number, prompt in enumerate(prompts):
            text, tokens = "", []
            for token in self.stream(self.encode_prompt(prompt), settings, tally):
                tokens.append(token)
                longer = self.tokenizer.decode(tokens, skip_special_tokens=True)
                if not longer.endswith("\N{REPLACEMENT CHARACTER}"):  # a character in the making
                    on_text(number, longer[len(text) :])
                    text = longer
            texts.append(self.tokenizer.decode(tokens, skip_special_tokens=True))
            if texts[-1] != text:  # the reply ends within a character
                on_text(number, texts[-1][len(text) :])
            replies.append(tuple(tokens))
        report = make_report(tally, self.costs, gamma=settings.gamma, replies=len(replies))
        return Generation(texts=tuple(texts), tokens=tuple(replies), report=report)

    def encode_prompt(self, prompt: str) -> list[int]:
        """The tokens of a prompt, in the chat template if the model has one."""
        if not self.tokenizer.chat_template:
            return list(self.tokenizer(prompt).input_ids)
        chat = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def stop_tokens(self) -> frozenset[int]:
        """Tokens that end a reply, by the tokenizer and by the config."""
        stated = self.network.config.eos_token_id
        found = {self.tokenizer.eos_token_id, *(stated if isinstance(stated, list) else [stated])}
        return frozenset(token for token in found if token is not None)


def _pack_layers(network: Any, packed: PackedFile, mode: Mode, products: ProductsFactory) -> None:
    """Replace the linear layers of a network whose matrices are packed."""
    for name, layer in list(network.named_modules()):
        tensor = _tensor_of(f"{name}.weight", packed)
        if not isinstance(layer, torch.nn.Linear) or tensor is None:
            continue
        made = products(packed.read_packed(tensor), layer.weight.detach())
        network.set_submodule(name, PackedLinear(made, mode, layer.bias))


def _tensor_of(weight: str, packed: PackedFile) -> str | None:
    """The packed tensor that holds a weight: a tied head is stored as the embedding."""
    if weight in packed.tensors:
        return weight
    return EMBEDDING if weight == HEAD and EMBEDDING in packed.tensors else None


def _costs(network: Any, packed: PackedFile) -> Costs:
    """What the passes of a network read of the weights of a file."""
    head = _tensor_of(HEAD, packed)
    linear = [_weight_bytes(packed, name) for name in packed.tensors if name != head]
    return Costs(
        linear=sum(linear, ReadBytes()),
        head=ReadBytes() if head is None else _weight_bytes(packed, head),
        other=_other_bytes(packed),
        position=_position_bytes(network),
    )


def _weight_bytes(packed: PackedFile, name: str) -> ReadBytes:
    stored = packed.stored_bytes(name)
    draft = stored["speculation"] + stored["directory"]
    count = packed.tensors[name].count
    return ReadBytes(draft=draft, target=draft + stored["verification"], bf16=2 * count)


def _other_bytes(packed: PackedFile) -> int:
    return sum(raw.nbytes for name, raw in packed.others.items() if name != EMBEDDING)


def _position_bytes(network: Any) -> int:
    config = network.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * config.num_key_value_heads * size * _BF16_BYTES
