"""Packed directories through transformers' own loaders: import this module once.

``AutoModelForCausalLM.from_pretrained(packed)`` then gives a model of transformers' class whose
``generate()`` speculates, and whose ``cassandra`` is the
:class:`cassandra_spec.model.speculative.CassandraForCausalLM` behind it. With
``trust_remote_code=True`` the directory's own code imports this module
(:mod:`cassandra_spec.model.weights.mark`).
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME
from transformers.utils.quantization_config import QuantizationConfigMixin

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_types import HEAD, find_model_type
from cassandra_spec.model.reply import fill_model, packed_reader
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.speculative.memory import model_memory
from cassandra_spec.model.weights.mark import METHOD, write_code
from cassandra_spec.model.weights.sources import MODEL_FILE, copy_companions
from cassandra_spec.native.codec import fastest_codec
from cassandra_spec.native.memory import require_memory


@register_quantization_config(METHOD)
class CassandraConfig(QuantizationConfigMixin):
    """The entry ``quantization_config`` of a packed directory's config.json."""

    def __init__(self, version: int = 1, **entries: Any) -> None:
        if version != 1:
            raise CassandraError(f"quantization_config: version must be 1, not {version!r}")
        self.quant_method = METHOD  # type: ignore[assignment]
        self.version = version


@register_quantizer(METHOD)
class CassandraQuantizer(HfQuantizer):
    """The quantiser that ``from_pretrained`` calls around its own loading, which loads no
    weights.
    """

    requires_calibration = True  # weights are packed by `casspec pack` alone

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        """Refuse other places than the CPU."""
        named = device_map.values() if isinstance(device_map, dict) else ()
        if {str(place) for place in named} - {"cpu"}:
            raise CassandraError(f"device_map must be 'cpu', or not given, not {device_map}")

    def update_device_map(self, device_map: Any) -> Any:
        """Map to the CPU if transformers is to choose (``"auto"``)."""
        return {"": torch.device("cpu")} if isinstance(device_map, str) else device_map

    def update_attn_implementation(self, config: Any) -> Any:
        """Remove the config's hint to import this module, and check the model type."""
        config.transformers_weights = None
        find_model_type(config.model_type, field="name", where=config.name_or_path)
        return config

    def update_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return BF16; packed weights have no other type."""
        return torch.bfloat16

    def is_serializable(self) -> bool:
        """``save_pretrained`` gives the packed files back."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Packed weights are not trained."""
        return False

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: Any = None, **kwargs: Any
    ) -> Any:
        """Check the file; keep transformers from reading or initialising packed weights."""
        self.packed = PackedFile(Path(checkpoint_files[0]))
        require_memory(model_memory(self.packed, products=2), str(self.packed.path))
        model._keys_to_ignore_on_load_missing = {""}  # an expression that all names match
        model._keys_to_ignore_on_load_unexpected = {""}
        if HEAD in {*self.packed.tensors, *self.packed.others}:
            _untie(model)
        self._tied, model.all_tied_weights_keys = model.all_tied_weights_keys, {}
        for module in model.modules():
            if type(module) in (
                torch.nn.Linear,
                torch.nn.Embedding,
            ):  # other modules also have buffers
                module._is_hf_initialized = True
        return model

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        model.all_tied_weights_keys = self._tied
        model.tie_weights()
        codec = fastest_codec()
        fill_model(model, packed_reader(self.packed, codec.decode_target))
        cassandra = CassandraForCausalLM.of_network(model, self.packed, None, codec=codec)
        model.__class__ = _speculating(model.__class__)
        model.cassandra = cassandra
        return model


def _untie(model: Any) -> None:
    """Give a model a head of its own, whatever its config says."""
    model.config.tie_word_embeddings, model.all_tied_weights_keys = False, {}
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.empty_like(head.weight))


class SpeculativeGeneration:
    """The methods that a packed model's class puts before those of transformers' class."""

    cassandra: CassandraForCausalLM
    hf_quantizer: CassandraQuantizer
    generation_config: Any

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        prefix_allowed_tokens_fn: Any = None,
        synced_gpus: bool | None = None,
        assistant_model: Any = None,
        streamer: Any = None,
        negative_prompt_ids: Any = None,
        negative_prompt_attention_mask: Any = None,
        custom_generate: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Generate like :meth:`cassandra_spec.model.speculative.CassandraForCausalLM.generate`.

        The signature is that of transformers, which is called where ``custom_generate`` is given.
        """
        named = {
            "logits_processor": logits_processor,
            "stopping_criteria": stopping_criteria,
            "prefix_allowed_tokens_fn": prefix_allowed_tokens_fn,
            "synced_gpus": synced_gpus,
            "assistant_model": assistant_model,
            "streamer": streamer,
            "negative_prompt_ids": negative_prompt_ids,
            "negative_prompt_attention_mask": negative_prompt_attention_mask,
        }
        if custom_generate is not None:
            own: Any = super()
            return own.generate(
                inputs, generation_config, custom_generate=custom_generate, **named, **kwargs
            )
        options = {name: value for name, value in named.items() if value}  # lists may be empty
        return self.cassandra.generate(inputs, generation_config, **options, **kwargs)

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> None:
        """Write the packed directory that the model was loaded from, which must be there still.

        All files are the same, byte for byte, but for a ``generation_config`` that has changed.
        """
        for name in (name for name, value in kwargs.items() if value):
            raise CassandraError(f"save_pretrained() of a packed model must not be given {name}")
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        source = self.hf_quantizer.packed.path
        shutil.copyfile(source, folder / MODEL_FILE)
        copy_companions(source.parent, folder)
        write_code(folder)
        if self.generation_config != _generation_config(source.parent):
            self.generation_config.save_pretrained(folder)


class PackedConfig(PreTrainedConfig):
    """The config class that a packed directory's config.json names."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, **kwargs: Any) -> Any:  # type: ignore[override]
        """Return the config of the architecture; this module must be imported."""
        return AutoConfig.from_pretrained(folder, **kwargs, trust_remote_code=False)


def _generation_config(folder: Path) -> GenerationConfig:
    """Read the generation config that transformers finds in a directory."""
    if (folder / GENERATION_CONFIG_NAME).is_file():
        return GenerationConfig.from_pretrained(folder, local_files_only=True)
    source: dict[str, Any] = {"config_file_name": CONFIG_NAME, "_from_model_config": True}
    return GenerationConfig.from_pretrained(folder, local_files_only=True, **source)


def generate(*inputs: Any, model: Any, **arguments: Any) -> Any:
    """Generate for a packed directory's ``custom_generate/generate.py``.

    Raises :class:`CassandraError` if ``model`` was not loaded from a packed directory.
    """
    if not isinstance(model, SpeculativeGeneration):
        raise CassandraError(
            "custom_generate must be called on a model from a packed directory, "
            f"not on a {type(model).__name__} of plain weights"
        )
    return type(model).generate(model, *inputs, **arguments)


@functools.cache
def _speculating(kind: Any) -> Any:
    """Return a class of the same name, because transformers checks the name."""
    return type(kind.__name__, (SpeculativeGeneration, kind), {"__module__": kind.__module__})
