"""What config.json and GGUF headers say becomes a shape, or one line that names the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.configs import eos_of, shape_of_config, shape_of_gguf
from tessella.core.errors import BadWeights, InputError, UnsupportedModel
from tessella.core.shapes import Rope, RopeKind

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 500_000.0,
}
QWEN2 = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
GGUF: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500_000.0,
    "llama.rope.dimension_count": 16,
    "llama.vocab_size": 300,
}


def test_a_llama_config_is_read() -> None:
    shape = shape_of_config(LLAMA)
    assert (shape.family, shape.layers, shape.hidden, shape.intermediate) == ("llama", 2, 64, 128)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 16)
    assert (shape.vocab, shape.context, shape.norm_eps) == (300, 512, 1e-5)
    assert shape.rope == Rope(theta=500_000.0)
    assert [shape.tied, shape.qkv_bias, shape.out_bias, shape.mlp_bias] == [False] * 4


def test_qwen2_has_biases_on_queries_keys_and_values_alone() -> None:
    shape = shape_of_config(QWEN2 | {"attention_bias": False, "mlp_bias": True})
    assert [shape.qkv_bias, shape.out_bias, shape.mlp_bias] == [True, False, False]


def test_llama_flags_are_read() -> None:
    shape = shape_of_config(
        LLAMA
        | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 32}
    )
    assert shape.qkv_bias
    assert shape.out_bias
    assert shape.mlp_bias
    assert shape.tied
    assert shape.head_dim == 32


def test_a_llama_config_without_grouped_heads_has_as_many_as_heads() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert shape_of_config(config).kv_heads == 4
    with pytest.raises(BadWeights, match="num_key_value_heads is missing"):
        shape_of_config({**config, "architectures": ["Qwen2ForCausalLM"]})


def test_without_architectures_the_model_type_decides() -> None:
    config = {key: value for key, value in QWEN2.items() if key != "architectures"}
    assert shape_of_config(config).family == "qwen2"
    with pytest.raises(UnsupportedModel, match="model_type 'mamba'"):
        shape_of_config(config | {"model_type": "mamba"})


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
LLAMA3_ROPE = Rope(
    theta=500_000.0,
    kind=RopeKind.LLAMA3,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_context=256,
)
YARN_ROPE = Rope(theta=500_000.0, kind=RopeKind.YARN, factor=4.0, original_context=128)


@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({"rope_scaling": None}, Rope(theta=500_000.0)),
        ({"rope_theta": None}, Rope(theta=10_000.0)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, Rope(theta=7.0)),
        ({"rope_parameters": {"rope_type": "default"}}, Rope(theta=500_000.0)),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}},
            Rope(theta=500_000.0, kind=RopeKind.LINEAR, factor=2.0),
        ),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, LLAMA3_ROPE),
        (
            {
                "rope_theta": None,
                "rope_parameters": {"rope_type": "llama3", "rope_theta": 500_000.0, **LLAMA3},
            },
            LLAMA3_ROPE,
        ),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 128,
                }
            },
            YARN_ROPE,
        ),
        (
            {
                "original_max_position_embeddings": 128,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 64,
                },
            },
            YARN_ROPE,
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 0.5}},
            Rope(
                theta=500_000.0,
                kind=RopeKind.YARN,
                factor=4.0,
                original_context=512,
                attention_factor=0.5,
            ),
        ),
    ],
)
def test_both_spellings_of_rope_are_read(keys: dict[str, Any], rope: Rope) -> None:
    assert shape_of_config(LLAMA | keys).rope == rope


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "architectures: 'GemmaForCausalLM'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type 'dynamic'"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters.rope_type 'longrope'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 1.0}}, "rope_scaling.mscale"),
        ({"rope_scaling": {"type": "yarn", "truncate": False}}, "rope_scaling.truncate"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ],
)
def test_what_the_engine_lacks_is_refused_by_name(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        shape_of_config(QWEN2 | keys)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "64"}, "hidden_size must be a whole number, not '64'"),
        ({"hidden_size": -64}, "hidden_size must be from 1"),
        ({"hidden_size": 10**5000}, "not a number of more than 128 bits"),
        ({"num_attention_heads": 0}, "num_attention_heads must be from 1"),
        ({"num_attention_heads": True}, "num_attention_heads must be a whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3 does not divide"),
        ({"num_attention_heads": 6, "num_key_value_heads": 3}, "head_dim is missing"),
        ({"head_dim": 15}, "head_dim = 15 is odd"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be from 1"),
        ({"vocab_size": 1 << 40}, "vocab_size must be from 1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be above 0 and finite"),
        ({"rope_theta": float("inf")}, "rope_theta must be above 0 and finite"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list"),
        ({"rope_scaling": [1]}, "rope_scaling must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        (
            {"rope_scaling": {"type": "llama3", **LLAMA3, "high_freq_factor": 1.0}},
            "rope_scaling.low_freq_factor",
        ),
    ],
)
def test_what_cannot_be_true_is_refused_by_its_key(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(BadWeights) as caught:
        shape_of_config(LLAMA | keys)
    assert named in str(caught.value)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@given(st.sampled_from([*LLAMA, "rope_scaling", "rope_parameters", "head_dim"]), JUNK)
def test_any_junk_under_any_key_is_a_shape_or_an_input_error(key: str, junk: object) -> None:
    try:
        shape = shape_of_config(LLAMA | {key: junk})
    except InputError as exc:
        assert "\n" not in str(exc)
    else:
        assert shape.heads % shape.kv_heads == 0


def test_a_gguf_header_is_read_as_the_same_shape() -> None:
    assert shape_of_gguf(GGUF, tied=False) == shape_of_config(LLAMA)
    qwen2 = {key.replace("llama.", "qwen2."): value for key, value in GGUF.items()}
    qwen2 |= {"general.architecture": "qwen2"}
    assert shape_of_gguf(qwen2, tied=True) == shape_of_config(QWEN2 | {"tie_word_embeddings": True})


def test_a_gguf_vocabulary_is_as_long_as_its_tokens() -> None:
    header = {key: value for key, value in GGUF.items() if key != "llama.vocab_size"}
    assert shape_of_gguf(header | {"tokenizer.ggml.tokens": ["a"] * 7}, tied=True).vocab == 7
    with pytest.raises(BadWeights, match=r"llama\.vocab_size is missing"):
        shape_of_gguf(header, tied=True)


@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({"llama.rope.scaling.type": "none"}, Rope(theta=500_000.0)),
        ({"llama.rope.scale_linear": 1.0}, Rope(theta=500_000.0)),
        (
            {"llama.rope.scaling.factor": 4.0},
            Rope(theta=500_000.0, kind=RopeKind.LINEAR, factor=4.0),
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 128,
            },
            YARN_ROPE,
        ),
    ],
)
def test_the_rope_of_a_gguf_header_is_read(keys: dict[str, Any], rope: Rope) -> None:
    assert shape_of_gguf(GGUF | keys, tied=True).rope == rope


@pytest.mark.parametrize(
    ("keys", "error", "named"),
    [
        ({"general.architecture": None}, BadWeights, "general.architecture is missing"),
        ({"general.architecture": "bert"}, UnsupportedModel, "general.architecture 'bert'"),
        ({"llama.expert_count": 8}, UnsupportedModel, "llama.expert_count"),
        ({"llama.rope.dimension_count": 8}, UnsupportedModel, "llama.rope.dimension_count"),
        ({"llama.rope.scaling.type": "longrope"}, UnsupportedModel, "llama.rope.scaling.type"),
        (
            {"llama.rope.scaling.yarn_beta_fast": 16.0},
            UnsupportedModel,
            "llama.rope.scaling.yarn_beta_fast",
        ),
        ({"llama.attention.value_length": 8}, UnsupportedModel, "llama.attention.value_length"),
        ({"llama.attention.head_count_kv": 3}, BadWeights, "llama.attention.head_count_kv = 3"),
        ({"llama.attention.head_count_kv": [2, 2]}, BadWeights, "llama.attention.head_count_kv"),
        ({"llama.block_count": 0}, BadWeights, "llama.block_count"),
    ],
)
def test_a_gguf_header_out_of_its_rules_is_refused_by_its_key(
    keys: dict[str, Any], error: type[InputError], named: str
) -> None:
    with pytest.raises(error) as caught:
        shape_of_gguf(GGUF | keys, tied=True)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("holders", "more", "ids"),
    [
        ([{}, {}], (), set()),
        ([{"eos_token_id": None}, {"eos_token_id": 2}], (), {2}),
        ([{"eos_token_id": 1}, {"eos_token_id": [2, 3]}], (4,), {1, 2, 3, 4}),
        ([{"eos_token_id": [0, -1, 10]}], (), {0}),
    ],
)
def test_eos_ids_are_the_union_of_what_the_files_say(
    holders: list[dict[str, Any]], more: tuple[int, ...], ids: set[int]
) -> None:
    assert eos_of(*holders, more=more, vocab=10) == ids


@pytest.mark.parametrize("value", ["2", 2.0, True, [2, "3"], {"id": 2}])
def test_an_eos_id_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(BadWeights, match="eos_token_id"):
        eos_of({"eos_token_id": value}, vocab=10)
