r"""Packed models in the lm-evaluation-harness (packing.md), under the name ``cassandra``.

Needs the package lm-eval (the extra ``eval``). As a command it is the harness's own, with one more
model::

    python -m cassandra_spec.bench.accuracy run --model cassandra --model_args pretrained=packed \
        --tasks gpqa_diamond_cot_zeroshot --apply_chat_template
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from cassandra_spec.drafting import Report
from cassandra_spec.golden import CassandraError, GoldenCodec
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.pretrained import load_transformers_tokenizer
from cassandra_spec.model.reply import build_model, packed_reader
from cassandra_spec.model.speculative import CassandraForCausalLM

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as error:
    raise CassandraError(
        "lm-eval must be installed for the evaluation harness (pip install 'cassandra-spec[eval]'):"
        f" {error}"
    ) from error

View = Literal["target", "draft"]

_log = logging.getLogger("lm_eval.cassandra")  # printed with the harness's output


@register_model("cassandra")
class CassandraLM(HFLM):
    """A packed model, its target or its draft, as the harness's own class for transformers' models.

    ``pretrained`` is the directory of a packed model. With ``gamma`` replies come from speculative
    decoding on the CPU (greedy ones are those of plain decoding in the same passes), and what was
    accepted is logged; otherwise from transformers' own ``generate()`` on ``device``.
    Likelihoods are the view's in either case. ``options`` are those of the harness's class, such as
    ``batch_size`` and ``max_length``.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        view: View = "target",
        gamma: int | str = 0,
        device: str | None = None,
        **options: Any,
    ) -> None:
        self._lm: CassandraForCausalLM | None = None
        self._gamma = int(gamma)
        self._accepted = self._drafted = 0
        _check(view, self._gamma)
        folder = Path(pretrained)
        if self._gamma:
            self._lm = CassandraForCausalLM.from_pretrained(folder)
            network = self._lm.network
        else:
            codec = GoldenCodec()
            decode = codec.decode_target if view == "target" else codec.decode_draft
            network = build_model(folder, packed_reader(open_packed(folder), decode))
            network.to(_available(device))
        tokenizer = load_transformers_tokenizer(folder)
        options.pop("dtype", None)  # a packed model is BF16
        super().__init__(pretrained=network, tokenizer=tokenizer, backend="causal", **options)

    def _model_call(self, *args: Any, **options: Any) -> Any:
        with self._usual_attention():
            return super()._model_call(*args, **options)

    def _model_generate(
        self, context: torch.Tensor, max_length: int, stop: list[str], **options: Any
    ) -> Any:
        if self._lm is None:
            return super()._model_generate(context, max_length, stop, **options)
        options.setdefault("do_sample", bool(options.get("temperature")))
        if not options["do_sample"]:
            options = {name: value for name, value in options.items() if name not in _SAMPLING}
        found = self._lm.generate(
            input_ids=context,
            max_length=max_length,
            stop_strings=stop or None,
            pad_token_id=self.tokenizer.pad_token_id,
            gamma=self._gamma,
            **options,
        )
        self._count(self._lm.report)
        return found

    def _count(self, report: Report | None) -> None:
        if report is None:
            return
        self._accepted += report.accepted
        self._drafted += report.drafted
        _log.info("accepted / drafted so far: %d / %d", self._accepted, self._drafted)

    @contextmanager
    def _usual_attention(self) -> Iterator[None]:
        """Run passes without the tiles of speculative decoding."""
        config = self.model.config
        before = config._attn_implementation
        if self._lm is not None:
            config._attn_implementation = "sdpa"
        try:
            yield
        finally:
            config._attn_implementation = before


_SAMPLING = ("temperature", "top_k", "top_p")


def _available(device: str | None) -> torch.device:
    """Return the requested device; the harness requests CUDA by default."""
    found = torch.device(device or "cpu")
    return found if found.type != "cuda" or torch.cuda.is_available() else torch.device("cpu")


def _check(view: object, gamma: int) -> None:
    if view not in get_args(View):
        raise CassandraError(f"view must be 'target' or 'draft', not {view!r}")
    if gamma < 0:
        raise CassandraError(f"gamma must be at least 0, not {gamma}")
    if gamma and view != "target":
        raise CassandraError(f"gamma must be 0 for a view other than the target, not {gamma}")


def main() -> None:
    """Run the harness's command with the additional choice ``--model cassandra``."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
