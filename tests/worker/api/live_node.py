"""A whole node on the loopback interface, in a thread of its own: a toy model, and a musivum that
lets it serve all of it.

with a_live_node(path) as live:
    requests.get(f"{live.url}/health")
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import requests
import trio

from p2p.testing import MemoryNetwork
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.signed_request import Request, sign_request
from tessella.engine.toy import TOY_VOCAB, ToyText, toy_shape, write_toy
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.node import run_node
from tessella.worker.testing import Hub
from tests.worker.conftest import InlineCompute

MODEL = "toy"
OWNER, MUSIVUM = Identity(b"o" * 32), Identity(b"m" * 32)
STRANGERS = [Identity(bytes([number + 1]) * 32) for number in range(4)]
START_SECONDS = 20.0
# So that answers are short, and prompts too long for it are easily found.
CONTEXT, MAX_INPUT = 64, 48
TEXT = ToyText(
    special_tokens=("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    chat_template="{% if tools %}<tool_call>{% endif %}{% for message in messages %}"
    "{{ '<|im_start|>' + message.role[0] + '\\n' + (message.content or '') }}{% endfor %}",
)
SHAPE = toy_shape(layers=2, vocab=TOY_VOCAB + len(TEXT.special_tokens))


@dataclass
class LiveNode:
    """Where it answers, and what is said to it with a signature."""

    url: str
    calls: int = field(default=0)

    def signed(self, identity: Identity, request: Request) -> dict[str, str]:
        """The headers of a call made now."""
        return sign_request(request, identity, time.time(), secrets.token_bytes(16))

    def post(self, identity: Identity, path: str, body: bytes = b"", **query: str) -> Any:
        """What a signed call is answered with."""
        pairs = tuple(sorted(query.items()))
        asked = Request("POST", path, pairs, body, OWNER.peer_id)
        headers = {**self.signed(identity, asked), "Content-Type": "application/json"}
        return requests.post(
            f"{self.url}{path}", params=pairs, data=body, headers=headers, timeout=10
        )

    def until_it_serves(self) -> None:
        """Wait until it takes requests. Fails if it does not."""
        for _ in range(100):
            if requests.get(f"{self.url}/health", timeout=10).status_code == 200:
                return
            time.sleep(0.05)
        raise AssertionError("the node does not serve")


@contextmanager
def a_live_node(path: Path) -> Iterator[LiveNode]:
    """Until the context is left. `path` is an empty directory, for its model."""
    write_toy(path, shape=SHAPE, text=TEXT)
    started: Queue[BaseException | None] = Queue()
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []
    where = f"127.0.0.1:{_free_port()}"

    def run() -> None:
        try:
            trio.run(_serve, path, where, started, stop)
        except BaseException as exc:  # noqa: BLE001 - the test that waits has to hear of it
            started.put(exc)

    thread = threading.Thread(target=run)
    thread.start()
    failed = started.get(timeout=START_SECONDS)
    if failed is not None:
        raise failed
    try:
        yield LiveNode(f"http://{where}")
    finally:
        ((token, scope),) = stop
        token.run_sync_soon(scope.cancel)
        thread.join(START_SECONDS)
    assert not thread.is_alive()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _serve(
    weights: Path,
    where: str,
    started: Queue[BaseException | None],
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]],
) -> None:
    net = MemoryNetwork()
    async with (
        net.host(MUSIVUM) as musivum,
        net.host(OWNER) as host,
        trio.open_nursery() as nursery,
    ):
        stop.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
        Hub(musivum, MUSIVUM, time.time).next_range = SHAPE.whole
        config = WorkerConfig(
            musivum=(musivum.address,),
            model=ModelId(MODEL),
            weights=weights,
            claim_mb=64,
            http=(where,),
            allow_private=True,
            lan=False,
            device="cpu",
            context=CONTEXT,
            max_input_tokens=MAX_INPUT,
            slots=3,
            hop_timeout=1.0,
            drain_seconds=1.0,
        )

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "ready":
                started.put(None)

        ground = Ground(OWNER, host, InlineCompute())
        await run_node(config, ground, trio.Event(), tell)
