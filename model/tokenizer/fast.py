"""A tokenizer of the package ``tokenizers``, with the part of transformers' interface used here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

_SPACES = {f" {mark}": mark for mark in (".", "?", "!", ",")} | {
    " ' ": "'",
    **{f" {end}": end for end in ("n't", "'m", "'s", "'ve", "'re")},
}
"""Spaces of word pieces that decoding removes on request, in this order."""


@dataclass(frozen=True)
class Encoded:
    """The tokens of a text."""

    input_ids: list[int]


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Settings of a tokenizer beside its tables."""

    special_tokens: Mapping[str, str]  # bos_token, eos_token, ...
    chat_template: str | dict[str, str] | None
    split_special_tokens: bool = False  # True: encode names of special tokens as text
    clean_up_spaces: bool = False
    clean_up_bpe: bool = False  # also clean spaces of a BPE model


class FastTokenizer:
    """Encode and decode text, and apply the chat template, exactly as transformers does.

    A copy (``copy.deepcopy``) shares nothing. One thread may use a tokenizer at a time.
    """

    def __init__(self, backend: Tokenizer, behaviour: Behaviour) -> None:
        self.backend_tokenizer = backend
        self.chat_template = behaviour.chat_template
        self.special_tokens_map = dict(behaviour.special_tokens)
        self._behaviour = behaviour
        backend.no_truncation()
        backend.no_padding()

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> Encoded:
        """Encode a text; ``add_special_tokens`` adds those of the tokenizer's post-processor."""
        backend = self.backend_tokenizer
        backend.encode_special_tokens = self._behaviour.split_special_tokens  # copies forget it
        (found,) = backend.encode_batch([text], add_special_tokens=add_special_tokens)
        return Encoded(found.ids)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""
        return self(text, add_special_tokens=add_special_tokens).input_ids

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of tokens; bytes of an incomplete character become U+FFFD."""
        text: str = self.backend_tokenizer.decode(
            list(tokens), skip_special_tokens=skip_special_tokens
        )
        is_bpe = isinstance(self.backend_tokenizer.model, BPE)
        if self._behaviour.clean_up_spaces and (self._behaviour.clean_up_bpe or not is_bpe):
            for found, wanted in _SPACES.items():
                text = text.replace(found, wanted)
        return text

    def get_vocab(self) -> dict[str, int]:
        """Return the number of each token, by its name."""
        vocabulary: dict[str, int] = self.backend_tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary

    def special_token_id(self, name: str) -> int | None:
        """Return the number of a special token, such as ``bos_token``; None without one."""
        token = self.special_tokens_map.get(name)
        if token is None:
            return None
        number: int | None = self.backend_tokenizer.token_to_id(token)
        if number is None and name != "unk_token":
            return self.special_token_id("unk_token")
        return number

    @property
    def bos_token_id(self) -> int | None:
        """Token before a text; None without one."""
        return self.special_token_id("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """Token behind a text; None without one."""
        return self.special_token_id("eos_token")

    @property
    def pad_token_id(self) -> int | None:
        """Token for padding; None without one."""
        return self.special_token_id("pad_token")

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str | list[int]:
        """Return the text of a conversation in the chat template, or its tokens.

        ``variables`` are further ones of the template.

        Raises ``ValueError`` if there is no template or both ends are asked for, and whatever the
        template raises.
        """
        from cassandra_spec.model.tokenizer.chat_template import render  # imports jinja2

        if continue_final_message and add_generation_prompt:
            raise ValueError("continue_final_message must not be set with add_generation_prompt")
        text = render(
            self._template(tools),
            conversation,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            names={**self.special_tokens_map, **variables},
        )
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def _template(self, tools: Sequence[Mapping[str, Any]] | None) -> str:
        known = self.chat_template
        if isinstance(known, dict):
            name = "tool_use" if tools is not None and "tool_use" in known else "default"
            known = known.get(name)
        if known is None:
            raise ValueError("the tokenizer must have a chat template (default), and has none")
        return known
