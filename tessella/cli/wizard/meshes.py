"""The first question: which mesh, and what it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tessella.cli.options import split_addrs
from tessella.cli.wizard.doors import Door, SwarmDoor, musivum_door
from tessella.cli.wizard.offers import Offer
from tessella.cli.wizard.talk import Talk, ask_for
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import BadAddress, BadConfig, TessellaError
from tessella.web.targets import parse_url

ORCHESTRATOR_VARIABLE = "ORCHESTRATOR_URL"
NONE = "none"
_AGAIN = {"again": True, "a": True, "on": False, "o": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """Where a mesh is asked for; neither URL nor peer for the swarm alone."""

    text: str = ""
    """As the configuration names it."""
    url: str = ""
    peer: PeerAddress | None = None
    bootstrap: tuple[str, ...] = ()

    @property
    def is_swarm(self) -> bool:
        """Whether nobody assigns layers."""
        return not self.text


OpenDoor = Callable[[Orchestrator], Door]


@dataclass(frozen=True, slots=True)
class Mesh:
    """What was chosen, and what it answered."""

    orchestrator: Orchestrator
    door: Door | None
    """None where nobody answered, and nobody is asked again."""
    offers: tuple[Offer, ...]


def read_orchestrator(text: str) -> Orchestrator:
    """`https://…`, `/ip4/…/p2p/ID` or `none`. Raises BadAddress that says what is wrong."""
    if text.lower() == NONE:
        return Orchestrator()
    if text.startswith("/"):
        return Orchestrator(text=text, peer=parse_peer(text))
    if "://" not in text:
        raise BadAddress(f"neither https://…, nor a multiaddr, nor `{NONE}`: {text!r}")
    parse_url(text)
    if "?" in text or "#" in text:
        raise BadAddress(f"the URL of an orchestrator has no ? and no #: {text!r}")
    url = text.rstrip("/")
    return Orchestrator(text=url, url=url)


def read_bootstrap(text: str) -> tuple[str, ...]:
    """Multiaddrs between commas or blanks, or none. Raises BadAddress."""
    return tuple(parse_peer(addr).full()[0] for addr in split_addrs([text]))


def open_door(at: Orchestrator) -> Door:
    """The door of a real mesh."""
    if at.is_swarm:
        return SwarmDoor([parse_peer(addr) for addr in at.bootstrap])
    return musivum_door(at.peer or at.url)


def ask_mesh(talk: Talk, environ: Mapping[str, str], opened: OpenDoor, device: str) -> Mesh:
    """Ask for the orchestrator until one answers, or until it may be silent."""
    talk.title("Mesh")
    talk.say(
        "The orchestrator (a musivum) tells the node which layers to hold: an https:// URL, or a "
        f"multiaddr /ip4/HOST/tcp/PORT/p2p/ID. `{NONE}`: the swarm alone, found by Kademlia."
    )
    default = environ.get(ORCHESTRATOR_VARIABLE, "").strip()
    while True:
        at = ask_for(talk, "Orchestrator", read_orchestrator, default)
        if at.is_swarm:
            at = _with_bootstrap(talk)
        door = opened(at)
        try:
            return Mesh(at, door, tuple(door.offers(device)))
        except TessellaError as exc:
            talk.say(f"No answer: {exc}.")
        if not ask_for(talk, "Ask `again`, or go `on` without", _read_again, "again"):
            return Mesh(at, None, ())
        default = at.text or NONE


def _with_bootstrap(talk: Talk) -> Orchestrator:
    talk.say("Peers of the swarm to find it through: multiaddrs. None: the local network alone.")
    return Orchestrator(bootstrap=ask_for(talk, "Bootstrap peers", read_bootstrap))


def _read_again(text: str) -> bool:
    try:
        return _AGAIN[text.lower()]
    except KeyError:
        raise BadConfig("answer `again` or `on`") from None
