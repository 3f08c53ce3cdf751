"""A mesh that is attacked on every node gives the tokens that it gives in peace."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from itertools import cycle
from pathlib import Path

import pytest
import trio

from p2p.yamux.wire import MAX_BODY, SYN, WINDOW_UPDATE, pack
from tessella.core.addresses import PeerAddress
from tessella.core.messages import COMPLETE, HOP, STATUS, TOKENS
from tessella.engine.toy import write_toy
from tests.p2p.hostile.mesh import toy_mesh
from tests.p2p.hostile.peer import dial, hostile_peer
from tests.p2p.hostile.served import SECONDS, figures, rss_mib
from tests.p2p.test_hostile_sockets import GARBAGE
from tests.p2p.test_hostile_streams import BOMBS, NEGOTIATIONS
from tests.worker.conftest import SHAPE

pytestmark = pytest.mark.mesh

TOKENS_ASKED = 24


class Attack:
    """Everything at once, again and again: idle sockets, garbage, SYNs, overruns, bombs."""

    def __init__(self, node: PeerAddress) -> None:
        self.node = node
        self.rounds = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with AsyncExitStack() as stack:
            for _ in range(50):
                await stack.enter_async_context(await dial(self.node))
            for number in cycle(range(100)):
                # That a node ends what is done to it is what it is supposed to do.
                with suppress(Exception):
                    await self._once(bytes([100 + number]) * 32, f"127.0.1.{100 + number}")
                    self.rounds += 1
                await trio.sleep(0.02)

    async def _once(self, seed: bytes, source: str) -> None:
        async with await dial(self.node, source) as stream:
            await stream.send_all(GARBAGE["noise of zeros"])
        async with hostile_peer(self.node, seed, source) as peer:
            for data in NEGOTIATIONS.values():
                await peer.send(peer.data(await peer.open(), data))
            for protocol in (HOP, TOKENS, COMPLETE, STATUS):
                for bomb in BOMBS.values():
                    await peer.send(peer.data(await peer.open(protocol), bomb[:MAX_BODY]))
            syns = (pack(WINDOW_UPDATE, SYN, 10_001 + 2 * n, 0) for n in range(500))
            await peer.send(b"".join(syns))
            number = await peer.open(HOP)
            for _ in range(20):
                await peer.send(peer.data(number, bytes(MAX_BODY)))


async def test_the_same_tokens_before_during_and_after(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=SHAPE)
    async with toy_mesh(tmp_path, nodes=3) as mesh:
        with trio.fail_after(2 * SECONDS):
            started = trio.current_time()
            before = await mesh.tokens(TOKENS_ASKED)
            quiet = trio.current_time() - started
            rss, during = rss_mib(), []
            attacks = [Attack(host.address) for host in mesh.hosts]
            async with trio.open_nursery() as nursery:
                for attack in attacks:
                    nursery.start_soon(attack.run)
                await trio.sleep(0.3)
                started = trio.current_time()
                for _ in range(6):
                    during.append(await mesh.tokens(TOKENS_ASKED))
                busy = (trio.current_time() - started) / 6
                nursery.cancel_scope.cancel()
            after = await mesh.tokens(TOKENS_ASKED)
        figures(
            "mesh",
            tokens=len(before),
            rounds=sum(attack.rounds for attack in attacks),
            equal=int(all(ids == before for ids in (*during, after))),
            quiet_s=quiet,
            attacked_s=busy,
            rss_delta_mib=rss_mib() - rss,
        )
        assert all(attack.rounds for attack in attacks)
        assert len(before) == TOKENS_ASKED
        assert during == [before] * 6
        assert after == before
