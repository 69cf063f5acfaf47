"""A small model that was never quantised: trained here, on the texts that come along.

SmolLM2 comes as a file whose weights were once quantised, so some of their low bits are not a
trained model's. The model made here is no use for anything but a comparison: its weights are those
that an optimiser left, rounded once, to BF16.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.output import staged_directory
from cassandra_spec.model.packing.calibration import read_text

_END = "<end>"
_LENGTH = 128  # tokens of a sample
_BATCH = 16
_RATE = 2e-3
_POSITIONS = 512
_WIDTH = 256


def train_small(destination: Path, *, steps: int = 600, progress: bool = False) -> None:
    """Train a Llama from scratch on the calibration text and save it in BF16.

    Deterministic on one machine. Raises :class:`CassandraError` without a step.
    """
    if steps < 1:
        raise CassandraError(f"steps must be at least 1, not {steps}")
    text = read_text(None)
    with staged_directory(destination) as folder:
        tokenizer = _tokenizer(text)
        tokenizer.save_pretrained(folder)
        torch.manual_seed(0)
        model = LlamaForCausalLM(_config(len(tokenizer)))
        tokens = torch.tensor(tokenizer(text, verbose=False).input_ids)
        _train(model, tokens, steps, progress)
        model.bfloat16().save_pretrained(folder)


def _tokenizer(text: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=_END, pad_token=_END, model_max_length=_POSITIONS
    )


def _config(vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=_WIDTH,
        intermediate_size=_WIDTH * 8 // 3 // 64 * 64,
        num_hidden_layers=4,
        num_attention_heads=_WIDTH // 32,
        num_key_value_heads=_WIDTH // 64,
        head_dim=32,
        max_position_embeddings=_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


def _train(model: LlamaForCausalLM, tokens: torch.Tensor, steps: int, progress: bool) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps + 1)
    bar = tqdm(_batches(tokens, steps), "training", total=steps, disable=not progress)
    for batch in bar:
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}")


def _batches(tokens: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    for _ in range(steps):
        starts = torch.randint(len(tokens) - _LENGTH, (_BATCH,), generator=random)
        yield tokens[starts[:, None] + torch.arange(_LENGTH)]
