"""The client's configuration file: what may be in it, and what is said of anything else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tessella.cli.client_config import ClientConfig, config_text, read_config
from tessella.cli.discovery import Way
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadConfig
from tessella.core.identity import Identity

ADDR = f"/ip4/127.0.0.1/tcp/4001/p2p/{Identity(bytes(32)).peer_id}"


def test_every_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(
        f'api_url = "http://x:8080/"\npeers = ["{ADDR}"]\nmusivum = "{ADDR}"\n'
        'model = "org/name"\nmax_tokens = 7\ntemperature = 1\n'
    )
    peer = parse_peer(ADDR)
    config = read_config(path)
    assert config == ClientConfig(
        api_url="http://x:8080",
        peers=(peer,),
        musivum=peer,
        model="org/name",
        max_tokens=7,
        temperature=1.0,
    )
    assert config.way() == Way(
        api_url="http://x:8080", bootstrap=(peer,), musivum=peer, model="org/name"
    )


def test_a_musivum_may_be_named_by_its_url(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text('musivum = "https://musivum.example/"\n')
    assert read_config(path).way() == Way(musivum_url="https://musivum.example")


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ('musivim = "x"', "'musivim' is not known; the nearest is musivum"),
        ("max_token = 1", "the nearest is max_tokens"),
        ("[chat]\nmodel = 'x'", "'chat' is not known"),
        ("max_tokens = 0", "max_tokens"),
        ('max_tokens = "5"', "max_tokens"),
        ("max_tokens = true", "max_tokens"),
        ("temperature = 9", "temperature"),
        ("temperature = nan", "temperature"),
        ('musivum = "nonsense"', "nonsense"),
        ("peers = 'x'", "peers"),
        ("peers = ['x']", "peers"),
        ('api_url = "x:8080"', "x:8080"),
        ("model = 5", "model"),
        ("model", "line 1"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file_and_the_key(
    tmp_path: Path, text: str, culprit: str
) -> None:
    path = tmp_path / "client.toml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=culprit) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_a_file_that_was_named_has_to_be_there(home: Path) -> None:
    assert read_config(None) == ClientConfig()
    with pytest.raises(BadConfig, match=r"none\.toml"):
        read_config(home / "none.toml")
    usual = home / ".config" / "tessella" / "client.toml"
    usual.parent.mkdir(parents=True)
    usual.write_text('model = "toy"')
    assert read_config(None).model == "toy"


GIVEN: dict[str, Any] = {
    "api_url": "http://x:8080",
    "peers": [ADDR, ADDR],
    "musivum": ADDR,
    "model": 'a "name"',
    "max_tokens": 5,
    "temperature": 0.5,
}


@pytest.mark.parametrize("given", [{}, {"model": "toy"}, GIVEN])
def test_what_is_written_is_what_is_read(tmp_path: Path, given: dict[str, Any]) -> None:
    text = config_text({name: given.get(name) for name in GIVEN})
    assert {name: tomllib.loads(text)[name] for name in given} == given
    (tmp_path / "client.toml").write_text(text)
    config = read_config(tmp_path / "client.toml")
    assert config.model == given.get("model")
    # What was not given stands there to be filled in.
    assert all(f"{name} = " in text for name in GIVEN)


def test_a_flag_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadAddress, match="nonsense"):
        config_text({"musivum": "nonsense"})
