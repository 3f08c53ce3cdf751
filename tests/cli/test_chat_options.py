"""Which of all that flags, environment and configuration name is asked."""

from __future__ import annotations

import pytest

from tessella.cli.chat_options import Asked, chosen_way, sampling_asked
from tessella.cli.client_config import ClientConfig
from tessella.cli.discovery import Way
from tessella.core.addresses import parse_peer
from tessella.core.identity import Identity


def addr(number: int) -> str:
    return f"/ip4/10.0.0.{number}/tcp/4001/p2p/{Identity(bytes([number]) * 32).peer_id}"


A, B, C = addr(1), addr(2), addr(3)
PA, PB, PC = parse_peer(A), parse_peer(B), parse_peer(C)
FILE = ClientConfig(api_url="http://file", peers=(PB,), musivum=PC, model="filed")
MESH = ClientConfig(peers=(PB,), musivum=PC, model="filed")
NONE = ClientConfig()

CASES = [
    # What is asked first goes before all that follows.
    (Asked(api_url="http://a", peer=A, bootstrap=[B], musivum=C), FILE, "http://a"),
    (Asked(peer=A, bootstrap=[B], musivum=C), FILE, PA),
    (Asked(bootstrap=[B], musivum=C), FILE, (PB, PC)),
    (Asked(bootstrap=[f"{A},{B}"]), FILE, ((PA, PB), None)),
    (Asked(musivum=C), FILE, ((), PC)),
    # The configuration, in the same order, where no flag names anything.
    (Asked(), FILE, "http://file"),
    (Asked(), MESH, (PB, PC)),
    (Asked(model="mine"), MESH, (PB, PC)),
    # A node on this machine, or the line that names all ways.
    (Asked(), NONE, None),
    (Asked(model="mine"), NONE, None),
]


def led_to(way: Way) -> object:
    """What a way leads to, as the table writes it."""
    if way.is_empty:
        return None
    if way.api_url or way.peer:
        return way.api_url or way.peer
    several = way.bootstrap[0] if len(way.bootstrap) == 1 else way.bootstrap
    return several, way.musivum


@pytest.mark.parametrize(("asked", "config", "target"), CASES)
def test_the_order_of_targets(asked: Asked, config: ClientConfig, target: object) -> None:
    assert led_to(chosen_way(asked, config)) == target


@pytest.mark.parametrize(
    ("asked", "config", "model"),
    [
        (Asked(), MESH, "filed"),
        (Asked(musivum=A), MESH, "filed"),
        (Asked(model="mine"), MESH, "mine"),
        # A node that is named has a model of its own.
        (Asked(peer=A), MESH, ""),
        (Asked(api_url="http://a"), MESH, ""),
        (Asked(api_url="http://a", model="mine"), MESH, "mine"),
    ],
)
def test_the_configured_model_is_one_of_a_mesh(
    asked: Asked, config: ClientConfig, model: str
) -> None:
    assert chosen_way(asked, config).model == model


def test_flags_of_the_subcommand_go_before_those_in_front_of_it() -> None:
    front = Asked(api_url="http://front", model="front")
    assert front.behind(Asked(model="back")) == Asked(api_url="http://front", model="back")


def test_what_no_flag_says_of_sampling_is_as_configured() -> None:
    config = ClientConfig(max_tokens=7, temperature=0.5)
    kept = sampling_asked(config, max_tokens=None, temperature=None)
    assert (kept.max_tokens, kept.temperature) == (7, 0.5)
    given = sampling_asked(config, max_tokens=9, temperature=0.0)
    assert (given.max_tokens, given.temperature) == (9, 0.0)
