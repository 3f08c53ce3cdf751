"""A neighbour that lies is answered by code, counted, and disturbs nobody else."""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.ids import ModelId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    COMPLETE,
    HOP,
    TOKENS,
    AskStatus,
    Cancel,
    Complete,
    Fail,
    Hidden,
    Open,
    Stage,
    TokenOpen,
)
from tessella.core.sampling import Sampling
from tessella.core.tensors import WireTensor

OpenMesh = Callable[..., Any]
SESSION = SessionId(b"hostile session!")
HIDDEN = 64


def tensor(value: float = 0.5, positions: int = 1) -> WireTensor:
    return WireTensor("f32", (positions, HIDDEN), struct.pack("<f", value) * (HIDDEN * positions))


def opening(mesh: Any) -> Open:
    """What the client would send to the second of three nodes, as if it were the first."""
    _, middle, tail = mesh.nodes
    return Open(
        session_id=SESSION,
        epoch=0,
        model=ModelId("toy"),
        contract=mesh.contract,
        dtype="f32",
        chain=(
            Stage(mesh.client.address.peer_id, LayerRange(0, 2)),
            Stage(middle.identity.peer_id, LayerRange(2, 4)),
            Stage(tail.identity.peer_id, LayerRange(4, 6)),
        ),
        place=1,
        capacity=64,
        prompt=struct.pack("<2I", 1, 2),
        sampling=Sampling(max_tokens=4).encode(),
        entry_addrs=mesh.client.address.addrs,
        entry_url="",
        grant=b"",
        grant_signature=b"",
    )


@asynccontextmanager
async def stream_to(mesh: Any, node: Any, protocol: str = HOP) -> AsyncIterator[FrameStream]:
    await mesh.client.connect(node.address, timeout=5)
    stream = await mesh.client.open_stream(node.identity.peer_id, protocol, timeout=5)
    async with stream:
        yield stream


async def failure(stream: FrameStream) -> Fail:
    while True:
        message = await stream.receive(20)
        if isinstance(message, Fail):
            return message


@pytest.mark.parametrize(
    ("hidden", "code", "text"),
    [
        (Hidden(SESSION, 0, 0, tensor(math.nan), False), "bad_tensor", "finite"),
        (Hidden(SESSION, 0, 0, tensor(math.inf), False), "bad_tensor", "finite"),
        (Hidden(SESSION, 0, 0, tensor(3e38), False), "bad_tensor", "above 1e+09"),
        (Hidden(SESSION, 0, 0, replace(tensor(), dtype="f16"), False), "bad_tensor", "f16"),
        (Hidden(SESSION, 0, 0, replace(tensor(), shape=(1, 63)), False), "bad_tensor", "63"),
        (Hidden(SESSION, 0, 0, replace(tensor(), data=b"x"), False), "bad_tensor", "1 bytes"),
        (Hidden(SESSION, 0, 0, tensor(), False, bytes(65)), "bad_tensor", "voucher of 65 bytes"),
        (Hidden(SESSION, 0, 7, tensor(), False), "position_gap", "position 7 is beyond the 0"),
        (Hidden(SESSION, 0, -1, tensor(), False), "bad_frame", "-1"),
        (Hidden(SESSION, 0, 0, tensor(positions=65), False), "context_length_exceeded", "64"),
        (Hidden(SESSION, 3, 0, tensor(), False), "out_of_turn", "another session"),
        (Hidden(SessionId(b"x" * 16), 0, 0, tensor(), False), "out_of_turn", "another session"),
        (AskStatus(), "out_of_turn", "AskStatus"),
    ],
)
async def test_a_hidden_state_that_lies_ends_its_own_session_only(
    open_mesh: OpenMesh, autojump_clock: MockClock, hidden: Any, code: str, text: str
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask("an honest prompt", max_tokens=4)
        async with stream_to(mesh, mesh.nodes[1]) as stream:
            await stream.send(opening(mesh))
            await stream.send(hidden)
            failed = await failure(stream)
        assert failed.code == code
        assert text in failed.text
        after = await mesh.ask("an honest prompt", max_tokens=4)
        assert after.ids == reference.ids
        status = await mesh.status(mesh.nodes[1])
        blamed = {mesh.client.address.peer_id: 1} if code == "bad_tensor" else {}
        assert status["peer_failures"] == blamed
        assert status["sessions"] == []


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"model": "other"}, "refused", "serves toy, not other"),
        ({"contract": "0" * 64}, "refused", "other tensors"),
        ({"dtype": "f8"}, "refused", "f8"),
        ({"capacity": 0}, "refused", "0 positions"),
        ({"capacity": 10**9}, "refused", "1000000000 positions"),
        ({"place": 0}, "bad_frame", "place 0"),
        ({"place": 3}, "bad_frame", "place 3"),
        ({"place": 2}, "out_of_turn", "another node's"),
        ({"prompt": b"abc"}, "bad_frame", "3 bytes"),
        ({"prompt": struct.pack("<I", 10**6)}, "bad_frame", "1000000"),
        ({"prompt": bytes(4 * 65)}, "bad_frame", "260 bytes"),
        ({"session_id": b"short"}, "bad_frame", "5 bytes"),
        ({"epoch": -1}, "bad_frame", "epoch -1"),
        ({"sampling": b"{"}, "bad_request", "JSON"),
        ({"chain": ()}, "bad_frame", "chain of 0"),
    ],
)
async def test_terms_that_do_not_fit_are_refused_by_name(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    changes: dict[str, Any],
    code: str,
    text: str,
) -> None:
    async with open_mesh([2, 2, 2]) as mesh, stream_to(mesh, mesh.nodes[1]) as stream:
        await stream.send(replace(opening(mesh), **changes))
        failed = await failure(stream)
        assert failed.code == code
        assert text in failed.text


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([(0, 2), (2, 4), (4, 5)], "5 layers, the model has 6"),
        ([(0, 2), (3, 4), (4, 6)], "3:4 after layer 2"),
        ([(0, 3), (2, 4), (4, 6)], "2:4 after layer 3"),
        ([(1, 2), (2, 4), (4, 6)], "1:2 after layer 0"),
        ([(0, 1), (1, 4), (4, 6)], "holds layers 2:4, not 1:4"),
    ],
)
async def test_a_chain_that_leaves_layers_out_is_refused(
    open_mesh: OpenMesh, autojump_clock: MockClock, ranges: list[tuple[int, int]], text: str
) -> None:
    async with open_mesh([2, 2, 2]) as mesh, stream_to(mesh, mesh.nodes[1]) as stream:
        honest = opening(mesh)
        chain = tuple(
            replace(stage, layers=LayerRange(*bounds))
            for stage, bounds in zip(honest.chain, ranges, strict=True)
        )
        await stream.send(replace(honest, chain=chain))
        assert text in (await failure(stream)).text


async def test_a_session_opened_by_another_than_the_stage_before_is_refused(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh, stream_to(mesh, mesh.nodes[1]) as stream:
        honest = opening(mesh)
        first = replace(honest.chain[0], peer_id=mesh.nodes[0].identity.peer_id)
        await stream.send(replace(honest, chain=(first, *honest.chain[1:])))
        failed = await failure(stream)
        assert (failed.code, "stage before" in failed.text) == ("out_of_turn", True)


async def test_kv_that_does_not_fit_is_refused_and_never_taken_from_a_live_session(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        middle = mesh.nodes[1]
        async with stream_to(mesh, middle) as first, stream_to(mesh, middle) as second:
            big = replace(opening(mesh), capacity=256)
            await first.send(big)
            await second.send(replace(big, session_id=SessionId(b"another session!")))
            async with stream_to(mesh, middle) as third:
                await third.send(
                    replace(big, session_id=SessionId(b"one too many ..."), capacity=2)
                )
                failed = await failure(third)
            assert (failed.code, failed.retry) == ("too_many_sessions", True)
            assert len((await mesh.status(middle))["sessions"]) == 2


@pytest.mark.parametrize("grant", [b"", b"\x91\x0e", b"\xff" * 100])
async def test_a_token_stream_without_our_signature_is_refused(
    open_mesh: OpenMesh, autojump_clock: MockClock, grant: bytes
) -> None:
    async with open_mesh([3, 3]) as mesh, stream_to(mesh, mesh.nodes[0], TOKENS) as stream:
        await stream.send(TokenOpen(grant, b"s" * 64))
        assert (await failure(stream)).code == "bad_signature"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"{", "bad_request"),
        (b'{"model": "toy"}', "bad_request"),
        (b'{"model": "nobody has this", "prompt": "a"}', "unknown_model"),
        (b'{"model": "toy", "prompt": "' + b"x" * 300 + b'"}', "context_length_exceeded"),
        (b'{"model": "toy", "prompt": "a", "sampling": {"top_p": 7}}', "bad_request"),
    ],
)
async def test_a_request_that_cannot_be_served_is_answered_by_code(
    open_mesh: OpenMesh, autojump_clock: MockClock, request_: bytes, code: str
) -> None:
    async with open_mesh([3, 3]) as mesh:
        async with stream_to(mesh, mesh.nodes[0], COMPLETE) as stream:
            await stream.send(Complete(request_))
            failed = await failure(stream)
        assert failed.code == code
        for node in mesh.nodes:
            status = await mesh.status(node)
            assert status["sessions"] == []
            assert status["peer_failures"] == {}


async def test_a_cancel_ends_the_answer_at_once(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        mesh.nodes[1].compute.pace = 5.0
        async with stream_to(mesh, mesh.nodes[0], COMPLETE) as stream:
            await stream.send(Complete(b'{"model": "toy", "prompt": "hello"}'))
            await stream.receive(5)
            await stream.send(Cancel(SESSION, 0))
        for node in mesh.nodes:
            assert (await mesh.status(node))["sessions"] == []
