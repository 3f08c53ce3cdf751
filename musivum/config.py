"""What an operator may set. Every field has its unit and its rule, checked once, here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from musivum.federation.partners import Partner, check_partners
from tessella.core.addresses import LOOPBACK, PRIVATE, Cidr, PeerAddress, check_addr
from tessella.core.configs import MAX_CONTEXT
from tessella.core.errors import BadConfig
from tessella.core.formats import KvFormat
from tessella.core.ids import PeerId
from tessella.core.peers import MAX_ROWS
from tessella.core.plan import MIN_VRAM_MB, USABLE_VRAM_PCT

DEFAULT_PORT = 4001
DEFAULT_HTTP = "127.0.0.1:4080"
DEFAULT_DATA = Path("~/.musivum")
KEY_NAME = "musivum.key"
PEERS_NAME = "peers.json"
DATABASE_NAME = "musivum.db"
TOKEN_NAME = "admin.token"

# Thousands of nodes take some milliseconds to look through.
EXPIRY_SECONDS = 1.0
# Positions and micro-credits of any one ticket or day stay far below 64 bits.
MAX_TICKET_TOKENS, MAX_DAILY_CAP = 1 << 30, 10**9
# Shorter is a load on others; a credit that was earned an hour ago should be worth something.
MIN_PULL, MAX_PULL = 0.5, 3600.0
# Shorter beats are a load test; longer ones leave a dead node listed for a quarter of an hour.
MIN_HEARTBEAT, MAX_HEARTBEAT = 0.5, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MusivumConfig:
    """The settings of one musivum. Raises BadConfig that names the field."""

    listen: tuple[str, ...] = (f"/ip4/0.0.0.0/tcp/{DEFAULT_PORT}",)
    """Multiaddrs to listen on; port 0 takes a free one. At least one."""

    announce: tuple[str, ...] = ()
    """Multiaddrs that others are told first: what a NAT or a proxy maps to the listeners."""

    http: tuple[str, ...] = (DEFAULT_HTTP,)
    """HOST:PORT pairs to answer HTTP on; port 0 takes a free one. None answers no HTTP."""

    data: Path = DEFAULT_DATA
    """Directory of what outlives a restart; `~` is the home directory. Made if missing."""

    key: Path | None = None
    """The identity file, 32 bytes, mode 0600. None is `musivum.key` in `data`."""

    database_url: str = ""
    """Where the mesh is kept: `sqlite:///PATH`, or `postgresql://…`, with which a second musivum
    stands by. Empty is `musivum.db` in `data`."""

    admin_token_file: Path | None = None
    """The file with the operator's token, mode 0600. None is `admin.token` in `data`, made if
    missing."""

    bootstrap_only: bool = False
    """Whether it only is where peers of the swarm find each other: no tracker, no rows."""

    bootstrap: tuple[PeerAddress, ...] = ()
    """Other bootstrap peers of the same swarm."""

    snapshot: Path | None = None
    """Where the peers of the swarm are kept between runs; None keeps none."""

    allow: tuple[PeerId, ...] | None = None
    """The peers that may register, by peer id: a private mesh. None lets anybody in."""

    block: tuple[PeerId, ...] = ()
    """Peers that may not register, whatever `allow` says."""

    allow_private_addrs: bool | tuple[Cidr, ...] | None = None
    """Whether nodes may have private and loopback addresses, or the networks in which they may.
    None allows them where musivum itself has no public address. Link-local never."""

    dial_back: bool = True
    """Whether a node is listed only after musivum reached its key at a claimed address."""

    min_vram_mb: int = MIN_VRAM_MB
    """No node may claim less, in MB. 0 lets tiny models be split; at least 0."""

    min_vram_gb: float = 0.0
    """The same in GB; the larger of the two holds. At least 0."""

    usable_vram_pct: int = USABLE_VRAM_PCT
    """The part of a claim that layers may fill, in percent. 1 to 100."""

    context_size: int = 2048
    """Positions a session may hold, where a price is asked for without saying. At least 1."""

    parallel_slots: int = 4
    """Sessions a claim is sized for, where a price is asked for without saying. At least 1."""

    kv_cache_type: str = ""
    """How keys and values are kept, where a price is asked for without saying: f32, f16, bf16,
    q8_0 or q4_0. Empty is the serving type."""

    heartbeat_seconds: float = 10.0
    """How often a node is told to announce itself, in seconds. 0.5 to 300."""

    missed_beats: int = 3
    """Heartbeats in a row that a node may miss before it counts as offline. At least 1."""

    load_seconds: float = 900.0
    """How long a node may load its layers before they are given away, in seconds. Above 0."""

    stall_seconds: float = 60.0
    """How long a load may stand still before its layers are given away, in seconds. Above 0."""

    heal_seconds: float = 30.0
    """How long layers may be served by nobody before a node that others can spare is moved there,
    in seconds. 0 never moves a node by itself."""

    forget_seconds: float = 600.0
    """How long an offline node stays listed, in seconds. At least 0."""

    max_nodes: int = MAX_ROWS
    """Nodes kept at a time, offline ones included. 1 to 16384, which is what a peer list holds."""

    max_nodes_per_network: int = 3
    """Nodes of one network, a /24 of IPv4 or a /48 of IPv6, by where their key answered; of a node
    behind a tunnel that is the tunnel. Private networks that nodes may be in do not count, nor does
    `exempt`. 0 is no limit."""

    max_connections: int = 12_000
    """Connections open at a time, both ways. At least 1."""

    requests_per_second: float = 20.0
    """HTTP requests of one address, and questions of one peer, in the long run. Above 0."""

    request_burst: int = 40
    """HTTP requests of one address, and questions of one peer, at once. At least 1."""

    exempt: tuple[Cidr, ...] = LOOPBACK
    """Networks that the limits by address do not hold for."""

    max_ticket_tokens: int = 131_072
    """Positions that one ticket may be for, prompt and answer together. 1 to 1073741824."""

    mint_daily_cap: int = 1000
    """Credits that may be made a day for one node, beyond what those who ask pay themselves; a
    fifth of them for the requests of one of these. 0 to 1000000000."""

    federation: tuple[Partner, ...] = ()
    """Musivums whose tickets are paid and whose credits count here, as PEER@URL. At most 64."""

    federation_pull_seconds: float = 30.0
    """How often the ledger of each of them is asked for what is new, in seconds. 0.5 to 3600."""

    def __post_init__(self) -> None:
        if not self.listen:
            raise BadConfig("listen: no address to listen on")
        for addr in (*self.listen, *self.announce):
            check_addr(addr)
        _within("min_vram_mb", self.min_vram_mb, 0, None)
        _within("usable_vram_pct", self.usable_vram_pct, 1, 100)
        _within("min_vram_gb", self.min_vram_gb, 0, None)
        _within("context_size", self.context_size, 1, MAX_CONTEXT)
        _within("parallel_slots", self.parallel_slots, 1, None)
        if self.kv_cache_type:
            KvFormat.parse(self.kv_cache_type)
        _within("heartbeat_seconds", self.heartbeat_seconds, MIN_HEARTBEAT, MAX_HEARTBEAT)
        _within("missed_beats", self.missed_beats, 1, None)
        for name in ("load_seconds", "stall_seconds", "requests_per_second"):
            if not getattr(self, name) > 0:
                raise BadConfig(f"{name} = {getattr(self, name)}: has to be above 0")
        _within("heal_seconds", self.heal_seconds, 0, None)
        _within("request_burst", self.request_burst, 1, None)
        _within("forget_seconds", self.forget_seconds, 0, None)
        _within("max_connections", self.max_connections, 1, None)
        _within("max_nodes", self.max_nodes, 1, MAX_ROWS)
        _within("max_nodes_per_network", self.max_nodes_per_network, 0, None)
        _within("max_ticket_tokens", self.max_ticket_tokens, 1, MAX_TICKET_TOKENS)
        _within("mint_daily_cap", self.mint_daily_cap, 0, MAX_DAILY_CAP)
        check_partners(self.federation)
        _within("federation_pull_seconds", self.federation_pull_seconds, MIN_PULL, MAX_PULL)

    @property
    def key_path(self) -> Path:
        """Where the identity is."""
        return (self.key or self.data / KEY_NAME).expanduser()

    @property
    def token_path(self) -> Path:
        """Where the operator's token is."""
        return (self.admin_token_file or self.data / TOKEN_NAME).expanduser()

    @property
    def database(self) -> str:
        """The URL of the database."""
        return self.database_url or f"sqlite:///{(self.data / DATABASE_NAME).expanduser()}"

    @property
    def allow_private(self) -> bool | tuple[Cidr, ...]:
        """Which private addresses nodes may have; none while that is not decided."""
        return self.allow_private_addrs or False

    @property
    def neighbours(self) -> tuple[Cidr, ...]:
        """Networks of which there may be any number of nodes."""
        private = (*LOOPBACK, *PRIVATE) if self.allow_private is True else self.allow_private or ()
        return (*self.exempt, *private)

    @property
    def least_claim_mb(self) -> int:
        """No node may claim less, in MB."""
        return max(self.min_vram_mb, math.ceil(self.min_vram_gb * 1024))

    @property
    def expiry_seconds(self) -> float:
        """How late, at most, silence is noticed, in seconds."""
        return min(EXPIRY_SECONDS, self.heartbeat_seconds / 4)

    @property
    def offline_after(self) -> float:
        """Seconds of silence after which a node is offline."""
        return self.heartbeat_seconds * self.missed_beats


def _within(name: str, value: float, least: float, most: float | None) -> None:
    # Written so that NaN, which is on neither side of anything, is refused as well.
    if not value >= least:
        raise BadConfig(f"{name} = {value}: has to be at least {least}")
    if most is not None and value > most:
        raise BadConfig(f"{name} = {value}: has to be at most {most}")
