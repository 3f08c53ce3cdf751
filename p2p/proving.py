"""Whether a peer can be dialled where it says: each address anew, whatever is open already.

What a peer claims about itself is told on to many others, who will dial it. So a claim is believed
only where somebody with the peer's key answers, and is no way to have us dial what lies inside our
own network: an address is judged first, a name once it is resolved, and what is dialled is what was
judged.

The gate of whoever answers counts handshakes under way and connections a second of our address, so
a peer's addresses begin a little apart: those that answer have mostly done so before the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address

import trio

from p2p.dialling import ADDRESS_TIMEOUT, STAGGER, Dial, race
from p2p.peers import Proof
from tessella.core.addresses import MAX_ADDRS, Cidr, Ip, PeerAddress, judge_addr, judge_ip, read_ip
from tessella.core.errors import PeerUnreachable, TessellaError

# Addresses that one name may have: two interfaces in two families. A name with more stands for a
# farm of machines, and would have us knock at all of them for one line of a claim.
MAX_IPS = 4
# What a failure may say besides its address: MAX_ADDRS of them are still one short answer.
MAX_REASON_CHARS = 160

Resolve = Callable[[str], Awaitable[tuple[Ip, ...]]]
"""The addresses behind a multiaddr of a name; PeerGone that says why there are none."""

Knock = Callable[[str], Awaitable[tuple[Ip, ...]]]
"""Returns when the peer's key answered at an address, with where that is."""


async def prove_each(peer: PeerAddress, dial: Knock, *, timeout: float) -> Proof:
    """Dial the addresses of a peer side by side, the first MAX_ADDRS of them.

    `dial` leaves nothing open; any TessellaError says why an address is not proven. An address has
    ADDRESS_TIMEOUT, all together have `timeout`.
    """
    tried = tuple(dict.fromkeys(peer.addrs[:MAX_ADDRS]))
    end = trio.current_time() + timeout
    proven: dict[str, tuple[Ip, ...]] = {}
    failures: dict[str, str] = {}

    async def attempt(addr: str, ended: trio.Event) -> None:
        try:
            with trio.fail_at(min(end, trio.current_time() + ADDRESS_TIMEOUT)):
                proven[addr] = await dial(addr)
        except trio.TooSlowError:
            failures[addr] = "did not answer in time"
        except TessellaError as exc:
            failures[addr] = str(exc)
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        for addr in tried:
            ended = trio.Event()
            nursery.start_soon(attempt, addr, ended)
            # The last one begins in the first half of the time, however little that is.
            with trio.move_on_after(min(STAGGER, timeout / (2 * len(tried)))):
                await ended.wait()
    told = [_line(addr, failures[addr]) for addr in tried if addr in failures]
    over = len(peer.addrs) - MAX_ADDRS
    if over > 0:
        told.append(f"{over} more were not tried: a peer has at most {MAX_ADDRS} addresses")
    shown = tuple(addr for addr in tried if addr in proven)
    ips = dict.fromkeys(ip for addr in shown for ip in proven[addr])
    return Proof(shown, tuple(told), tuple(ips))


def _line(addr: str, reason: str) -> str:
    """One failure. Addresses and reasons are a stranger's words in part."""
    text = f"{addr} {reason[:MAX_REASON_CHARS]}"
    return "".join(char if char.isprintable() else "?" for char in text)


async def dial_judged(
    peer: PeerAddress,
    addr: str,
    knock: Dial,
    *,
    resolve: Resolve,
    allow_private: bool | tuple[Cidr, ...],
) -> tuple[Ip, ...]:
    """Dial one address of a peer, where `judge_addr` and `judge_ip` allow all it leads to.

    `knock` is given literals; where it returned, without zones, is the answer. Raises BadAddress
    for what is no transport address, PeerGone for one that is refused, does not resolve or does not
    answer.
    """
    _heed(judge_addr(addr, allow_private))
    _, family, host, _, port = addr.split("/")
    found = (read_ip(host),) if family in ("ip4", "ip6") else await resolve(addr)
    if len(found) > MAX_IPS:
        raise PeerUnreachable(f"is a name of {len(found)} addresses, over {MAX_IPS}")
    for each in found:
        _heed(judge_ip(each, allow_private))
    literals = {f"/ip{each.version}/{each}/tcp/{port}": each for each in map(_unscoped, found)}
    answered: list[Ip] = []

    async def knock_once(literal: str) -> None:
        await knock(literal)
        answered.append(literals[literal])

    if len(literals) == 1:
        await knock_once(*literals)
    else:
        await race(PeerAddress(peer.peer_id, tuple(literals)), knock_once)
    return tuple(answered)


def _heed(refused: str | None) -> None:
    if refused is not None:
        raise PeerUnreachable(f"is not dialled: {refused}")


def _unscoped(ip: Ip) -> Ip:
    """Without a zone: that is an interface of the peer's machine, and none of ours."""
    return ip_address(ip.packed)
