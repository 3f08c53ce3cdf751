"""Tiny random checkpoints in the HuggingFace layout: for examples, and for tests without downloads.

    write_toy(Path("toy"), shape=toy_shape())

Their text is noise, but all of it is real: the files, the tokenizer (a token a byte), the chat
template. transformers loads them too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from tessella.core.parameters import EMBEDDING, HEAD, parameters_of
from tessella.core.shapes import DType, ModelShape, Rope, RopeKind
from tessella.engine.pieces import byte_alphabet

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
TOY_VOCAB = 256 + len(SPECIAL_TOKENS)
EOS_TOKEN = "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class ToyText:
    """How a toy reads and writes."""

    special_tokens: tuple[str, ...] = ()
    """Beside SPECIAL_TOKENS; they have the ids from TOY_VOCAB on."""
    chat_template: str = CHAT_TEMPLATE


_PLAIN = ToyText()

# Standard deviation of the logits: wide enough that two next tokens are hardly ever near a tie.
_LOGIT_SPREAD = 4.0
_TORCH = {DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16}
_WORDS = {DType.F32: "float32", DType.F16: "float16", DType.BF16: "bfloat16"}


def toy_shape(
    family: str = "llama",
    *,
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = TOY_VOCAB,
    tied: bool = False,
) -> ModelShape:
    """A small shape of a family, `llama` or `qwen2`. `dataclasses.replace` changes the rest."""
    return ModelShape(
        family=family,
        layers=layers,
        hidden=hidden,
        intermediate=2 * hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        vocab=vocab,
        context=512,
        norm_eps=1e-5,
        tied=tied,
        qkv_bias=family == "qwen2",
    )


def write_toy(
    path: Path,
    *,
    shape: ModelShape,
    seed: int = 0,
    files: int = 1,
    index: bool = True,
    dtype: DType = DType.F32,
    text: ToyText = _PLAIN,
) -> None:
    """Write a checkpoint directory; `path` is made if it is not there.

    The same shape, seed and dtype give the same tensors, however many `files` they lie in; several
    have an index unless `index` is false. Raises ValueError for a vocabulary below `TOY_VOCAB` and
    the special tokens of `text`.
    """
    needed = TOY_VOCAB + len(text.special_tokens)
    if shape.vocab < needed:
        raise ValueError(f"a toy needs a vocabulary of {needed}, not {shape.vocab}")
    path.mkdir(parents=True, exist_ok=True)
    _write_json(path / "config.json", config_of_shape(shape, dtype))
    _write_json(path / "generation_config.json", {"eos_token_id": [256, _eos_id()]})
    _write_weights(path, random_tensors(shape, seed, dtype), files, index=index)
    toy_backend(text.special_tokens).save(str(path / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS_TOKEN,
        "pad_token": "<|pad|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": text.chat_template,
    }
    _write_json(path / "tokenizer_config.json", tokenizer_config)


def random_tensors(shape: ModelShape, seed: int, dtype: DType) -> dict[str, torch.Tensor]:
    """Weights of unit gain, by their names: activations neither fade nor grow."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, size in parameters_of(shape).items():
        values = torch.randn(size, generator=generator)
        if name.endswith(".bias"):
            values *= 0.2
        elif len(size) == 1:
            values = 1.0 + 0.1 * values
        elif name in (EMBEDDING, HEAD):
            values *= _LOGIT_SPREAD / math.sqrt(shape.hidden)
        else:
            values /= math.sqrt(size[1])
        tensors[name] = values.to(_TORCH[dtype])
    return tensors


def config_of_shape(shape: ModelShape, dtype: DType = DType.F32) -> dict[str, object]:
    """The `config.json` that describes a shape: the inverse of `shape_of_config`."""
    architecture = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[shape.family]
    config: dict[str, object] = {
        "architectures": [architecture],
        "model_type": shape.family,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "rope_parameters": _rope_parameters(shape.rope),
        "bos_token_id": None,
        "eos_token_id": _eos_id(),
        "dtype": _WORDS[dtype],
    }
    if shape.family == "llama":
        config |= {"attention_bias": shape.qkv_bias, "mlp_bias": shape.mlp_bias}
    return config


def toy_backend(more: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """A token a byte, the special tokens after them, and then `more` of those."""
    vocab = {char: byte for byte, char in sorted(byte_alphabet().items())}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    special = (*SPECIAL_TOKENS, *more)
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    return backend


def _eos_id() -> int:
    return 256 + SPECIAL_TOKENS.index(EOS_TOKEN)


def _rope_parameters(rope: Rope) -> dict[str, object]:
    word = "default" if rope.kind is RopeKind.NONE else rope.kind.value
    found: dict[str, object] = {"rope_type": word, "rope_theta": rope.theta}
    if rope.kind is not RopeKind.NONE:
        found["factor"] = rope.factor
    if rope.kind in (RopeKind.LLAMA3, RopeKind.YARN):
        found["original_max_position_embeddings"] = rope.original_context
    if rope.kind is RopeKind.LLAMA3:
        found["low_freq_factor"] = rope.low_freq_factor
        found["high_freq_factor"] = rope.high_freq_factor
    if rope.kind is RopeKind.YARN:
        found |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
        if rope.attention_factor is not None:
            found["attention_factor"] = rope.attention_factor
    return found


def _write_weights(
    path: Path, tensors: dict[str, torch.Tensor], files: int, *, index: bool
) -> None:
    if files == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    share = math.ceil(len(names) / files)
    placed: dict[str, str] = {}
    for number in range(files):
        part = names[number * share : (number + 1) * share]
        file = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        save_file({name: tensors[name] for name in part}, path / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    if index:
        total = sum(tensor.nbytes for tensor in tensors.values())
        document = {"metadata": {"total_size": total}, "weight_map": placed}
        _write_json(path / "model.safetensors.index.json", document)


def _write_json(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")
