"""Who may connect to us, and how often: rules over addresses and counts, and the gate they make.

Strategy. An inbound socket is judged before a byte of its handshake is read: what a refusal costs
is an accept and a close. The rules are functions of numbers; `Gate` keeps the numbers. An address
means what one stranger has: an IPv4 address, or the /64 that every IPv6 host is given. A network
(/24, /48) is what one stranger rents, and bounds many addresses together.

Rates are token buckets and are taken only by who passes everything else, so a flood that is
refused uses nothing up that an honest neighbour needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from types import TracebackType

from tessella.core.addresses import LOOPBACK, PRIVATE, Cidr, Ip, address_of, read_ip, within
from tessella.core.errors import Busy
from tessella.core.rates import Buckets, Rate

ADDRESS_RATE, NETWORK_RATE = Rate(1.0, 8), Rate(4.0, 32)


@dataclass(frozen=True, slots=True)
class InboundLimits:
    """What inbound connections may use, per address, per network and together."""

    pending: int = 512
    """Sockets that are not authenticated yet, in all."""
    pending_per_address: int = 4
    """Of one address. They live for `HostLimits.upgrade_seconds` at most."""
    per_address: int = 8
    """Connections of one address, pending ones included: the nodes behind one NAT."""
    address_rate: Rate = ADDRESS_RATE
    """New connections of one address."""
    network_rate: Rate = NETWORK_RATE
    """New connections of one /24 or /48."""
    exempt: tuple[Cidr, ...] | None = None
    """Networks that only the limits for all addresses together hold for. None is loopback, and
    what `allow_private` of the host allows: neighbours there are not strangers."""


DEFAULT_INBOUND = InboundLimits()


@dataclass(frozen=True, slots=True)
class Load:
    """What is open: in all, and of the address that asks."""

    pending: int
    established: int
    pending_here: int
    established_here: int


def exempting(limits: InboundLimits, allow_private: bool | tuple[Cidr, ...]) -> InboundLimits:
    """The limits with their exemptions spelled out; see `InboundLimits.exempt`."""
    if limits.exempt is not None:
        return limits
    neighbours = PRIVATE if allow_private is True else allow_private or ()
    return replace(limits, exempt=(*LOOPBACK, *neighbours))


def network_of(ip: Ip) -> Cidr:
    """What one customer has: a /24, or a /48."""
    return ip_network((ip, 24 if ip.version == 4 else 48), strict=False)


def refusal(limits: InboundLimits, connections: int, load: Load, *, exempt: bool) -> str | None:
    """Why one more inbound connection is one too many; None if it is not."""
    if load.established >= connections:
        return f"all {connections} connections are in use"
    if load.pending >= limits.pending:
        return f"{limits.pending} handshakes are under way"
    if exempt:
        return None
    if load.pending_here >= limits.pending_per_address:
        return f"{limits.pending_per_address} handshakes of this address are under way"
    if load.pending_here + load.established_here >= limits.per_address:
        return f"{limits.per_address} connections of this address are open"
    return None


class Tally:
    """How many an address holds, and all together; addresses that hold none are forgotten."""

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Cidr, int] = {}

    def of(self, address: Cidr) -> int:
        """What one address holds."""
        return self._of.get(address, 0)

    def add(self, address: Cidr) -> None:
        """One more."""
        self.total += 1
        self._of[address] = self.of(address) + 1

    def drop(self, address: Cidr) -> None:
        """One less; it was added."""
        self.total -= 1
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]


@dataclass(slots=True)
class Visit:
    """One inbound connection's place. Leaving the context gives it back, once."""

    gate: Gate
    address: Cidr
    settled: bool = False

    def settle(self) -> None:
        """The peer is authenticated: the place of a handshake becomes one of a connection."""
        self.settled = True
        self.gate.pending.drop(self.address)
        self.gate.established.add(self.address)

    def __enter__(self) -> Visit:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = self.gate.established if self.settled else self.gate.pending
        held.drop(self.address)


@dataclass(slots=True)
class Gate:
    """The inbound connections of one host, by address."""

    limits: InboundLimits
    connections: int
    pending: Tally = field(default_factory=Tally)
    established: Tally = field(default_factory=Tally)
    refused: int = 0
    """How many sockets were turned away since the start."""
    by_address: Buckets[Cidr] = field(init=False)
    by_network: Buckets[Cidr] = field(init=False)
    _exempt: tuple[Cidr, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._exempt = exempting(self.limits, False).exempt or ()
        self.by_address = Buckets(self.limits.address_rate)
        self.by_network = Buckets(self.limits.network_rate)

    def enter(self, host: str, now: float) -> Visit:
        """A place for a connection from an IP literal. Raises Busy that says what is used up."""
        ip = read_ip(host.partition("%")[0])
        address, exempt = address_of(ip), within(ip, self._exempt)
        why = refusal(self.limits, self.connections, self._load(address), exempt=exempt)
        if why is None and not exempt:
            why = self._too_fast(address, network_of(ip), now)
        if why is not None:
            self.refused += 1
            raise Busy(f"refused {host}: {why}")
        self.pending.add(address)
        return Visit(self, address)

    def _load(self, address: Cidr) -> Load:
        return Load(
            pending=self.pending.total,
            established=self.established.total,
            pending_here=self.pending.of(address),
            established_here=self.established.of(address),
        )

    def _too_fast(self, address: Cidr, network: Cidr, now: float) -> str | None:
        if self.by_address.left(address, now) < 1:
            return f"more than {self.limits.address_rate.per_second:g} connections a second"
        if self.by_network.left(network, now) < 1:
            return f"more than {self.limits.network_rate.per_second:g} a second from {network}"
        self.by_address.take(address, now)
        self.by_network.take(network, now)
        return None
