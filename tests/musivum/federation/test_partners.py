"""What an operator may list."""

from __future__ import annotations

import pytest

from musivum.federation.partners import MAX_PARTNERS, Partner, check_partners, read_partner
from tessella.core.errors import BadAddress, BadConfig, TessellaError
from tests.core.work import identity

PEER = identity(1).peer_id


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (f"{PEER}@https://mesh.example.org", "https://mesh.example.org"),
        (f" {PEER}@http://127.0.0.1:4080/ ", "http://127.0.0.1:4080"),
        (f"{PEER}@https://example.org/musivum/", "https://example.org/musivum"),
        (f"{PEER}@http://[::1]:4080", "http://[::1]:4080"),
    ],
)
def test_a_partner_is_a_key_and_where_it_answers(text: str, url: str) -> None:
    found = read_partner(text)
    assert found == Partner(PEER, url)
    assert read_partner(str(found)) == found


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("https://mesh.example.org", BadConfig, "not PEER@URL"),
        (PEER, BadConfig, "not PEER@URL"),
        ("12D3@https://mesh.example.org", BadConfig, "12D3@https"),
        (f"{PEER}@mesh.example.org", BadAddress, "neither http nor https"),
        (f"{PEER}@ftp://mesh.example.org", BadAddress, "neither http nor https"),
        (f"{PEER}@https://user:word@mesh.example.org", BadAddress, "host"),
        (f"{PEER}@https://mesh.example.org/?a=b", BadAddress, "more than a path"),
        (f"{PEER}@", BadAddress, "neither"),
    ],
)
def test_what_is_no_partner_is_named(text: str, error: type[TessellaError], said: str) -> None:
    with pytest.raises(error, match=said):
        read_partner(text)


def test_nobody_is_listed_twice_and_no_more_than_can_be_followed() -> None:
    one = Partner(PEER, "https://a.example.org")
    with pytest.raises(BadConfig, match=f"{PEER} is listed twice"):
        check_partners((one, Partner(PEER, "https://b.example.org")))
    many = tuple(Partner(identity(n).peer_id, "https://a") for n in range(1, MAX_PARTNERS + 2))
    check_partners(many[:-1])
    with pytest.raises(BadConfig, match=f"{MAX_PARTNERS + 1} partners"):
        check_partners(many)
