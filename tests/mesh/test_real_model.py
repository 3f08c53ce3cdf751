"""The real model over real processes on loopback: what transformers says, whatever else goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import trio
from gguf import GGUFReader, dequantize, get_tensor_name_map
from gguf.constants import MODEL_ARCH

from tessella.cli.planning import lay_out, read_checkpoint
from tessella.client import ask_status
from tessella.core.errors import Refused
from tessella.core.layers import LayerRange, holes
from tessella.core.messages import HOP
from tessella.core.parameters import parameters_of
from tessella.core.shapes import DType
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.weights import open_checkpoint

if TYPE_CHECKING:
    from tests.mesh.conftest import Command, RealMesh, Said

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

LAYERS, HIDDEN, F32_BYTES = 30, 576, 4
TOKENS = 64
# In none of these answers is the runner-up nearer than 0.01 of a logit, and two orders of
# summation differ by less than 0.0001.
PROMPTS = [
    "Why is the sky blue?",
    "Tell me about the history of bread.",
    "Explain how a bicycle stays upright.",
    "Give me advice for a job interview.",
    "List three fruits and their colours.",
]
SHORT_PROMPT = "What is the capital of France?"
LONG_WORDS = (
    "international organization responsibility communication environmental administration "
    "technology understanding representatives architecture philosophical transportation "
)
LONG_PROMPT = (LONG_WORDS * 200)[: 24 * 1024]
# The model goes on with what it sees: a few emoji, each of several tokens, and Chinese.
MANY_BYTES = ["🐱🐶" * 5, "你好世界，" * 3]
# How soon after a client is gone no stage may hold its KV any longer.
FREED_SECONDS = 1.0


@dataclass(frozen=True)
class Reference:
    """transformers on the tensors of our checkpoint, and its own reading of the tokenizer."""

    model: Any
    tokenizer: Any

    def prompt(self, text: str) -> list[int]:
        conversation = [{"role": "user", "content": text}]
        found = self.tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, return_dict=True
        )
        return list(found["input_ids"])

    @torch.inference_mode()
    def answer(self, prompt: list[int], tokens: int) -> list[int]:
        """Greedy, up to the mark that ends the answer."""
        said = self.model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
        ids = [int(said.logits[0, -1].argmax())]
        while len(ids) < tokens and ids[-1] != self.tokenizer.eos_token_id:
            said = self.model(torch.tensor([ids[-1:]]), cache=said.cache)
            ids.append(int(said.logits[0, -1].argmax()))
        return ids


@pytest.fixture(scope="module")
def reader(smollm2_gguf: Path) -> GGUFReader:
    return GGUFReader(smollm2_gguf)


@pytest.fixture(scope="module")
def tensors(smollm2_gguf: Path) -> dict[str, torch.Tensor]:
    """Every parameter, read by our own reader, in f32."""
    checkpoint: Checkpoint = open_checkpoint(smollm2_gguf)
    found = {}
    for name, shape in parameters_of(checkpoint.shape).items():
        found[name] = torch.empty(shape)
        checkpoint.read(name, found[name])
    checkpoint.close()
    return found


@pytest.fixture(scope="module")
def reference(
    smollm2_gguf: Path, reader: GGUFReader, tensors: dict[str, torch.Tensor]
) -> Reference:
    """The sizes are those that the gguf library reads; none of ours goes in but the tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs are not ours to keep clean
        from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

        tokenizer = AutoTokenizer.from_pretrained(
            str(smollm2_gguf.parent), gguf_file=smollm2_gguf.name
        )

        def told(key: str) -> Any:
            return reader.fields[f"llama.{key}"].contents()

        config = LlamaConfig(
            vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
            hidden_size=told("embedding_length"),
            intermediate_size=told("feed_forward_length"),
            num_hidden_layers=told("block_count"),
            num_attention_heads=told("attention.head_count"),
            num_key_value_heads=told("attention.head_count_kv"),
            max_position_embeddings=told("context_length"),
            rms_norm_eps=told("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": told("rope.freq_base")},
            tie_word_embeddings=True,
        )
        model = LlamaForCausalLM(config)
    missing, strange = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert strange == []
    model.tie_weights()
    model.train(False)
    return Reference(model, tokenizer)


def test_tensors_are_those_that_the_gguf_library_reads(
    reader: GGUFReader, tensors: dict[str, torch.Tensor]
) -> None:
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, LAYERS)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert len(stored) == len(tensors)
    for name, ours in tensors.items():
        tensor = stored[names.get_name(name, try_suffixes=(".weight",)) or "a name of its own"]
        theirs = dequantize(tensor.data, tensor.tensor_type).reshape(ours.shape)
        heads = {"q_proj.weight": 9, "k_proj.weight": 3}.get(".".join(name.split(".")[-2:]))
        mine = ours.numpy() if heads is None else interleaved(ours.numpy(), heads)
        assert np.array_equal(mine, theirs), name


def interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of a query or key projection in the order that llama.cpp's converter writes them."""
    turned = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2)
    return turned.reshape(weight.shape)


@pytest.mark.parametrize(
    ("prompt", "reason"), [*((prompt, "length") for prompt in PROMPTS), (SHORT_PROMPT, "stop")]
)
async def test_three_stages_say_what_transformers_says(
    mesh: RealMesh, reference: Reference, prompt: str, reason: str
) -> None:
    ids = reference.prompt(prompt)
    said, expected = await both(
        mesh.ask(prompt, max_tokens=TOKENS), lambda: reference.answer(ids, TOKENS)
    )
    assert said.begun.prompt_tokens == len(ids)
    assert len(said.begun.chain) == 3
    assert said.ids == expected
    assert said.text == reference.tokenizer.decode(said.ids, skip_special_tokens=True)
    assert said.done is not None
    assert said.done.reason == reason
    assert (len(said.ids) == TOKENS) == (reason == "length")


async def both(asked: Awaitable[Said], computed: Callable[[], list[int]]) -> tuple[Said, list[int]]:
    """The mesh and transformers at the same time: there is more than one core."""
    expected: list[int] = []

    async def compute() -> None:
        expected.extend(await trio.to_thread.run_sync(computed))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(compute)
        said = await asked
    return said, expected


async def test_ranges_are_the_planners_and_cover_the_model(mesh: RealMesh) -> None:
    terms = read_checkpoint(mesh.plan.model.path, "cpu", DType.F32).terms(
        context=mesh.plan.context, slots=mesh.plan.slots, min_vram_mb=0
    )
    planned = [(each.start, each.stop) for each in lay_out(terms, mesh.plan.claims).ranges]
    assert mesh.ranges == planned
    assert len(planned) == 3
    said = await mesh.ask("Hello", max_tokens=1)
    assert [(one.layers.start, one.layers.stop) for one in said.begun.chain] == planned
    for status, (start, stop) in zip(await mesh.statuses(), planned, strict=True):
        assert status["layer_range"] == [start, stop]
        held = {name.split(".")[2] for name in names_in(status) if name.startswith("model.layers.")}
        assert held == {str(layer) for layer in range(start, stop)}
        assert ("model.embed_tokens.weight" in names_in(status)) == (start == 0 or stop == LAYERS)


def names_in(status: dict[str, Any]) -> list[str]:
    return [tensor["name"] for tensor in status["tensors"]]


async def test_hidden_states_go_down_the_chain_and_nowhere_else(mesh: RealMesh) -> None:
    before = await mesh.statuses()
    said = await mesh.ask("Name a colour.", max_tokens=8)
    after = await mesh.statuses()
    entry, middle, tail = (status["peer_id"] for status in after)
    # The last token is the answer to the position before it: nothing is computed for it.
    positions = said.begun.prompt_tokens + len(said.ids) - 1
    size = positions * HIDDEN * F32_BYTES
    assert [grown(before, after, "bytes_sent", place) for place in range(3)] == [
        {middle: size},
        {tail: size},
        {},
    ]
    assert [grown(before, after, "bytes_received", place) for place in range(3)] == [
        {},
        {entry: size},
        {middle: size},
    ]
    assert after[0]["hops"]["frames_received"] == {}
    assert list(after[1]["hops"]["frames_received"]) == [entry]
    assert list(after[2]["hops"]["frames_received"]) == [middle]


def grown(
    before: list[dict[str, Any]], after: list[dict[str, Any]], key: str, place: int
) -> dict[str, int]:
    old, new = before[place]["hops"][key], after[place]["hops"][key]
    return {peer: count - old.get(peer, 0) for peer, count in new.items() if count != old.get(peer)}


async def test_no_hidden_state_comes_to_musivum(mesh: RealMesh) -> None:
    await mesh.ask("Name a colour.", max_tokens=2)
    status = await ask_status(mesh.host, mesh.musivum)
    kinds = {*status["frames"]["received"], *status["frames"]["sent"]}
    assert "Signed" in kinds
    assert not kinds & {"Open", "Hidden", "Token", "Complete"}
    assert HOP not in status["protocols"]
    with pytest.raises(Refused):
        await mesh.host.open_stream(mesh.musivum.peer_id, HOP, timeout=5)
    for node in await mesh.statuses():
        assert mesh.musivum.peer_id not in node["hops"]["frames_sent"]


async def test_a_prompt_of_24_kilobytes_is_held_position_by_position(
    mesh: RealMesh, reference: Reference
) -> None:
    ids = reference.prompt(LONG_PROMPT)
    seen: list[list[dict[str, Any]]] = []
    before = await mesh.statuses()
    async with trio.open_nursery() as nursery:

        def look(said: Said) -> None:
            if len(said.ids) == 1:
                nursery.start_soon(remember)

        async def remember() -> None:
            seen.append(await mesh.statuses())

        said, expected = await both(
            mesh.ask(LONG_PROMPT, max_tokens=24, heard=look), lambda: reference.answer(ids, 2)
        )
    assert said.begun.prompt_tokens == len(ids) > 1500
    assert said.ids[:2] == expected
    for status in seen[0]:
        (session,) = status["sessions"]
        assert len(ids) <= session["held"] <= session["capacity"] == len(ids) + 24
    size = (len(ids) + len(said.ids) - 1) * HIDDEN * F32_BYTES
    after = await mesh.statuses()
    assert [*grown(before, after, "bytes_sent", 0).values()] == [size]
    assert [*grown(before, after, "bytes_sent", 1).values()] == [size]


@pytest.mark.parametrize("text", MANY_BYTES)
async def test_joined_deltas_are_the_whole_text(
    mesh: RealMesh, reference: Reference, text: str
) -> None:
    said = await mesh.ask(text, raw=True, max_tokens=20)
    prompt = reference.tokenizer(text)["input_ids"]
    assert said.ids == reference.answer(prompt, 20)
    assert said.text == reference.tokenizer.decode(said.ids, skip_special_tokens=True)
    assert len(said.text.encode()) > len(said.text)
    # A delta is whole characters, so some say nothing yet; only the last may be cut off inside one.
    assert "" in said.deltas
    assert all("�" not in delta for delta in said.deltas[:-1])


async def test_sixteen_at_once_are_answered_as_each_alone(mesh: RealMesh) -> None:
    prompts = [f"Tell me one thing about the number {number}." for number in range(16)]
    entry = await mesh.entry()
    alone = [(await mesh.ask(prompt, max_tokens=8, at=entry)).ids for prompt in prompts]
    assert len({tuple(ids) for ids in alone}) > 8
    for _ in range(2):
        together: list[list[int]] = [[] for _ in prompts]

        async def ask(place: int, found: list[list[int]]) -> None:
            found[place] = (await mesh.ask(prompts[place], max_tokens=8, at=entry)).ids

        async with trio.open_nursery() as nursery:
            for place in range(len(prompts)):
                nursery.start_soon(ask, place, together)
        assert together == alone
    assert [status["sessions"] for status in await mesh.statuses()] == [[], [], []]


async def test_a_killed_client_frees_its_kv_and_disturbs_nobody(
    mesh: RealMesh, start_command: Command
) -> None:
    prompt = "Write a long story about a lighthouse keeper."
    alone = (await mesh.ask(prompt, max_tokens=48)).ids
    doomed = start_command(
        "chat", "--musivum", mesh.musivum.full()[0], "--max-tokens=2000", "Count to one thousand."
    )
    await trio.to_thread.run_sync(first_byte, doomed)
    took: list[float] = []

    async def kill() -> None:
        held = [status["sessions"] for status in await mesh.statuses()]
        assert [len(sessions) for sessions in held] == [2, 2, 2]
        doomed.kill()
        started = time.monotonic()
        while any(len(status["sessions"]) != 1 for status in await mesh.statuses()):
            await trio.sleep(0.02)
            assert time.monotonic() - started < 2 * FREED_SECONDS
        took.append(time.monotonic() - started)

    async with trio.open_nursery() as nursery:

        def heard(said: Said) -> None:
            if len(said.ids) == 4:
                nursery.start_soon(kill)

        said = await mesh.ask(prompt, max_tokens=48, heard=heard)
        assert took, "the other's answer ended before the kill was seen"
    sys.stderr.write(f"KV of a killed client is free after {took[0] * 1000:.0f} ms\n")
    assert took[0] < FREED_SECONDS
    assert said.ids == alone
    last = await mesh.statuses()
    assert [status["kv_bytes"] for status in last] == [0, 0, 0]


def first_byte(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.read(1)


UP = ("up", "--prompt=Hello", "--max-tokens=2", "--json", "--context=512", "--slots=1")


@pytest.mark.parametrize(
    ("claims", "flags"),
    [
        ((), ("--workers=4",)),
        ((250, 60, 430), ("--claims=250,60,430",)),
    ],
)
async def test_up_splits_as_it_is_told(
    plan_of: Callable[..., Any],
    smollm2_gguf: Path,
    start_command: Command,
    tmp_path: Path,
    claims: tuple[int, ...],
    flags: tuple[str, ...],
) -> None:
    workers = len(claims) or 4
    plan = plan_of(workers=workers, claims=claims, context=512, slots=1)
    terms = read_checkpoint(smollm2_gguf, "cpu", DType.F32).terms(
        context=512, slots=1, min_vram_mb=0
    )
    planned = lay_out(terms, plan.claims).ranges
    process = start_command(
        *UP, f"--model={smollm2_gguf}", f"--dir={tmp_path}", "--device=cpu", "--dtype=f32", *flags
    )
    out, err = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, err.decode()
    said = json.loads(out)
    ranges = [LayerRange(*stage["layer_range"]) for stage in said["chain"]]
    assert ranges == planned
    assert len(ranges) == workers
    assert holes(ranges, LAYERS) == []
    assert sum(map(len, ranges)) == LAYERS
    assert said["claims"] == list(plan.claims)
    assert said["completion_tokens"] == 2
