"""What is wrapped around a program so that it dies by SIGKILL at one point of settlement, once.

All of it does what it does in the program, but for what a Trap says. Waits are shorter than a mesh
needs, which is all that is changed: a case is over as soon as all is settled.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import trio

from p2p import streams
from p2p.streams import READ_BYTES, SEND_TIMEOUT, FrameStream
from tessella.core.messages import Message, Proof, Settle, Settled, decode_sealed, encode
from tessella.core.proofs import SignedProof, unpack_batch
from tessella.core.settlement import Became, Outcome
from tests.mesh.settlement.points import AHEAD, MUSIVUM, Trap

# A frame that was written may still be with a task of the muxer.
FLUSH_SECONDS = 0.1

# Written to the null device before the first byte of proofs: who traces calls sees it.
UPLOAD = b"an upload begins"

_trap = Trap(Path())
_send = FrameStream.send


def die() -> NoReturn:
    """Nothing is cleaned up."""
    _trap.spring()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("SIGKILL was survived")


async def _die_within(stream: FrameStream, message: Message) -> None:
    frame = encode(message)
    await stream._stream.send_all(frame[: len(frame) // 2])
    await trio.sleep(FLUSH_SECONDS)
    die()


class Book(sqlite3.Connection):
    """The book of a node, on a disk of a node that may die."""

    is_serving = is_marking = False

    def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
        """As it always is, if it comes to that."""
        if statement.startswith("INSERT INTO proofs"):
            _at("w0")
            self.is_serving = True
        elif statement.startswith("UPDATE proofs SET state = ?"):
            self.is_marking = True
        elif statement == "COMMIT" and self.is_serving:
            _at("w1")
        found = super().execute(statement, *args)
        if statement == "COMMIT" and self.is_serving:
            _at("w2")
        elif statement == "COMMIT" and self.is_marking:
            _at("w6")
        if statement in ("COMMIT", "ROLLBACK"):
            self.is_serving = self.is_marking = False
        return found


def _at(point: str) -> None:
    if _trap.is_set(point, ""):
        die()


def _wrap_worker() -> None:
    """For w0 to w6."""
    from tessella.worker.proofs import billing, book, upload
    from tessella.worker.tracker import Tracker

    sqlite3.connect = partial(sqlite3.connect, factory=Book)  # type: ignore[assignment]
    upload.FIRST_ASK, upload.LONGEST_ASK = 0.2, 0.5
    upload.FIRST_RETRY, upload.LONGEST_RETRY = 0.2, 0.5
    upload.GATHER_SECONDS = 0.05
    billing.HOLD_SECONDS = book.HOLD_SECONDS = 0.5  # type: ignore[attr-defined]
    settle, marks = Tracker.settle, os.open(os.devnull, os.O_WRONLY)

    async def send(self: FrameStream, message: Message, timeout: float = SEND_TIMEOUT) -> None:
        if isinstance(message, Settle) and _trap.is_set("w3", ""):
            await _die_within(self, message)
        if isinstance(message, Settle):
            os.write(marks, UPLOAD)
        await _send(self, message, timeout)
        if isinstance(message, Settle) and _trap.is_set("w4", ""):
            # The answer is here, so musivum did what it says; we never look at it.
            await self._stream.receive_some(READ_BYTES)
            die()

    async def settled(self: Tracker, proofs: Sequence[SignedProof]) -> list[Outcome]:
        outcomes = await settle(self, proofs)
        if any(each.became in (Became.PAID, Became.ALREADY_PAID) for each in outcomes):
            _at("w5")
        return outcomes

    streams.FrameStream.send = send  # type: ignore[method-assign]
    Tracker.settle = settled  # type: ignore[method-assign]


class Paying:
    """A musivum that pays, and may die of it."""

    def __init__(self) -> None:
        self.dies = ""
        """The point at which the payment that was made is not answered."""

    def executed(
        self, _connection: object, _cursor: object, statement: str, parameters: Any, *_: object
    ) -> None:
        """After each statement in its database."""
        rows = parameters if isinstance(parameters, list) else [parameters]
        if statement.startswith("INSERT INTO entries"):
            for worker in _paid(rows):
                if _trap.is_set("o1", worker):
                    die()
                self.dies = next((p for p in ("o3", "o4") if _trap.is_set(p, worker)), self.dies)
        elif statement.startswith("INSERT INTO balances") and any(
            _trap.is_set("o2", account) for account, *_ in rows
        ):
            die()


def _paid(rows: Iterable[Sequence[Any]]) -> list[str]:
    from tessella.core.ledger import open_entry

    return [open_entry(payload).worker for *_, payload in rows]


def _wrap_musivum() -> None:
    """For o0 to o4."""
    from sqlalchemy import Engine, event

    from musivum.doors.ledger import LedgerDoor
    from tessella.core.ids import PeerId

    paying, answer = Paying(), LedgerDoor.answered
    event.listen(Engine, "after_cursor_execute", paying.executed)

    async def answered(self: LedgerDoor, message: Message, peer_id: PeerId) -> Message:
        if isinstance(message, Settle):
            for signed in unpack_batch(message.proofs):
                if _trap.is_set("o0", decode_sealed(signed.payload, Proof).worker):
                    die()
        reply = await answer(self, message, peer_id)
        if paying.dies == "o3":
            die()
        return reply

    async def send(self: FrameStream, message: Message, timeout: float = SEND_TIMEOUT) -> None:
        if isinstance(message, Settled) and paying.dies == "o4":
            await _die_within(self, message)
        await _send(self, message, timeout)

    LedgerDoor.answered = answered  # type: ignore[method-assign]
    streams.FrameStream.send = send  # type: ignore[method-assign]


def wrap(module: str, home: Path) -> None:
    """Before a program of ours is run in this process."""
    global _trap
    _trap = Trap(home)
    _set_clock(home / AHEAD)
    (_wrap_musivum if module == MUSIVUM else _wrap_worker)()


def _set_clock(file: Path) -> None:
    if file.exists():
        ahead, now = float(file.read_text()), time.time
        time.time = lambda: now() + ahead
