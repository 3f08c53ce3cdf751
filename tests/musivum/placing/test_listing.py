"""What is listed of the places that a node names: the rule, case by case."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from musivum.nodes.registration import read_registration
from musivum.placing.listing import Shown, listed, wants_challenge
from musivum.testing import HOUSE, a_registration
from tessella.core.errors import AddressUnproven, BadAddress, TessellaError
from tessella.core.ids import PeerId

NODE = PeerId("a")
A, B = "/ip4/10.0.0.1/tcp/4001", "/ip4/10.0.0.2/tcp/4001"
AT_A, AT_B, TUNNEL = "http://10.0.0.1:8080", "https://10.0.0.2", "https://pod.example.net"
SILENT = "did not answer in time"


def told(shown: Shown, api_url: str) -> tuple[tuple[str, ...], str] | type[TessellaError]:
    """What is listed of a node of two addresses, or why it is not."""
    asked = replace(a_registration(), addrs=(A, B), api_url=api_url)
    try:
        wish = listed(NODE, read_registration(asked, HOUSE), shown)
    except TessellaError as exc:
        return type(exc)
    return wish.addrs, wish.api_url


@pytest.mark.parametrize(
    ("proven", "api_url", "answers", "expected"),
    [
        ((A, B), "", False, ((A, B), "")),
        ((B,), "", False, ((B,), "")),
        ((), "", False, AddressUnproven),
        ((A, B), AT_A, False, ((A, B), AT_A)),
        ((B,), AT_B, False, ((B,), AT_B)),
        ((A,), AT_B, False, BadAddress),
        ((A,), AT_B, True, ((A,), AT_B)),
        ((A,), TUNNEL, False, BadAddress),
        ((A,), TUNNEL, True, ((A,), TUNNEL)),
        ((), AT_A, False, AddressUnproven),
        ((), AT_A, True, ((), AT_A)),
        ((), TUNNEL, False, AddressUnproven),
        ((), TUNNEL, True, ((), TUNNEL)),
    ],
)
def test_what_is_listed_was_shown_to_be_the_nodes_own(
    proven: tuple[str, ...],
    api_url: str,
    answers: bool,
    expected: tuple[tuple[str, ...], str] | type[TessellaError],
) -> None:
    assert told(Shown(addrs=proven, url=answers), api_url) == expected


@pytest.mark.parametrize(
    ("api_url", "proven", "open_question"),
    [
        ("", (), False),
        (AT_A, (A,), False),
        (AT_A, (A, B), False),
        (AT_A, (), True),
        (AT_A, (B,), True),
        (TUNNEL, (A, B), True),
        ("https://POD.example.net", ("/dns4/pod.example.net/tcp/1",), False),
    ],
)
def test_a_url_is_challenged_unless_an_address_settles_it(
    api_url: str, proven: tuple[str, ...], open_question: bool
) -> None:
    assert wants_challenge(api_url, proven) is open_question


def test_what_was_tried_is_told() -> None:
    wish = read_registration(replace(a_registration(), addrs=(A,), api_url=TUNNEL), HOUSE)
    shown = Shown(failures=(f"{A} {SILENT}",), url_failure=f"{TUNNEL}/p2p_id {SILENT}")
    with pytest.raises(AddressUnproven, match=f"{A} {SILENT}; {TUNNEL}/p2p_id {SILENT}"):
        listed(NODE, wish, shown)
    with pytest.raises(BadAddress, match=rf"answers \(10\.0\.0\.1\), and {TUNNEL}/p2p_id {SILENT}"):
        listed(NODE, wish, replace(shown, addrs=(A,), failures=()))


def test_where_the_key_answered_goes_with_the_wish() -> None:
    wish = read_registration(a_registration(), HOUSE)
    ips = (ip_address("192.0.2.1"),)
    assert listed(NODE, wish, Shown(addrs=wish.addrs, ips=ips)).ips == ips
