"""Who decides a value, what each source may say, and the operator's token."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from musivum.cli.pages import example, keys
from musivum.config import MusivumConfig
from musivum.federation.partners import Partner
from musivum.settings import (
    FLAGS,
    KEYS,
    TOKEN_VARIABLE,
    admin_token,
    find_token,
    listen_addr,
    load_settings,
    read_settings,
    variable_of,
)
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadConfig, BadKey
from tessella.core.identity import Identity
from tessella.settings.kinds import plain

PEER = Identity(b"p" * 32).peer_id
ADDR = f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}"
TOKEN = "t" * 32

# For every key: as TOML has it, as a variable has it, and what comes of it.
EVERY: dict[str, tuple[str, str, object]] = {
    "listen": ('["/ip4/127.0.0.1/tcp/1", "[::1]:2"]', "127.0.0.1:1,/ip6/::1/tcp/2", None),
    "announce": ('["/ip4/8.8.8.8/tcp/1"]', "/ip4/8.8.8.8/tcp/1", ("/ip4/8.8.8.8/tcp/1",)),
    "http": ('["127.0.0.1:80", ":81"]', "127.0.0.1:80, :81", ("127.0.0.1:80", ":81")),
    "data": ('"/d"', "/d", Path("/d")),
    "key": ('"~/k"', "~/k", Path.home() / "k"),
    "database_url": ('"sqlite:///x"', "sqlite:///x", "sqlite:///x"),
    "admin_token_file": ('"/t"', "/t", Path("/t")),
    "bootstrap_only": ("true", "yes", True),
    "bootstrap": (f'["{ADDR}"]', ADDR, (parse_peer(ADDR),)),
    "snapshot": ('"off"', "off", None),
    "allow": (f'["{PEER}"]', PEER, (PEER,)),
    "block": (f'["{PEER}"]', PEER, (PEER,)),
    "allow_private_addrs": ('["10.0.0.0/8"]', "10.0.0.0/8", (ip_network("10.0.0.0/8"),)),
    "dial_back": ("false", "0", False),
    "min_vram_mb": ("0", "0", 0),
    "min_vram_gb": ("1", "1", 1.0),
    "usable_vram_pct": ("50", "50", 50),
    "context_size": ("4096", "4096", 4096),
    "parallel_slots": ("2", "2", 2),
    "kv_cache_type": ('"q8_0"', "q8_0", "q8_0"),
    "heartbeat_seconds": ("2.5", "2.5", 2.5),
    "missed_beats": ("4", "4", 4),
    "load_seconds": ("1e3", "1e3", 1000.0),
    "stall_seconds": ("30", "30", 30.0),
    "heal_seconds": ("0.0", "0", 0.0),
    "forget_seconds": ("1", "1", 1.0),
    "max_nodes": ("7", "7", 7),
    "max_nodes_per_network": ("0", "0", 0),
    "max_connections": ("8", "8", 8),
    "requests_per_second": ("0.5", "0.5", 0.5),
    "request_burst": ("9", "9", 9),
    "exempt": ('["192.0.2.0/24", "::1"]', "192.0.2.0/24,::1", None),
    "max_ticket_tokens": ("4096", "4096", 4096),
    "mint_daily_cap": ("0", "0", 0),
    "federation": (f'["{PEER}@https://a.example/"]', f"{PEER}@https://a.example/", None),
    "federation_pull_seconds": ("5", "5", 5.0),
}
WANTED = {
    "listen": ("/ip4/127.0.0.1/tcp/1", "/ip6/::1/tcp/2"),
    "exempt": (ip_network("192.0.2.0/24"), ip_network("::1/128")),
    "federation": (Partner(PEER, "https://a.example"),),
}


def wanted(key: str) -> object:
    return WANTED.get(key, EVERY[key][2])


def written(directory: Path, text: str) -> Path:
    path = directory / "some.toml"
    path.write_text(text)
    return path


def test_every_field_is_in_the_table_of_these_tests() -> None:
    assert list(EVERY) == [field.name for field in fields(MusivumConfig)]


@pytest.mark.parametrize("key", EVERY)
def test_every_key_is_reached_from_the_file_and_from_the_environment(
    key: str, tmp_path: Path
) -> None:
    file = written(tmp_path, f"{key} = {EVERY[key][0]}\n")
    from_file = read_settings(file, {}, {})
    assert getattr(from_file.config, key) == wanted(key)
    assert from_file.sources[key] == "file"
    data = {"data": str(tmp_path)} if key != "data" else {}
    from_environment = read_settings(None, {variable_of(key): EVERY[key][1]}, data)
    assert getattr(from_environment.config, key) == wanted(key)
    assert from_environment.sources[key] == "environment"


@pytest.mark.parametrize(
    ("file", "environ", "flag", "value", "source"),
    [
        (False, None, None, 256, "default"),
        (True, None, None, 1, "file"),
        (True, "2", None, 2, "environment"),
        (True, "2", 3, 3, "flag"),
        (False, None, 0, 0, "flag"),
        (True, "", None, 1, "file"),
        (True, " ", None, 1, "file"),
    ],
)
def test_flag_before_environment_before_file_before_default(
    file: bool, environ: str | None, flag: int | None, value: int, source: str, tmp_path: Path
) -> None:
    if file:
        (tmp_path / "musivum.toml").write_text("min_vram_mb = 1\n")
    variables = {} if environ is None else {"MUSIVUM_MIN_VRAM_MB": environ}
    settings = read_settings(None, variables, {"data": str(tmp_path), "min_vram_mb": flag})
    assert settings.config.min_vram_mb == value
    assert settings.sources["min_vram_mb"] == source
    assert settings.file == (tmp_path / "musivum.toml" if file else None)


def test_the_data_directory_of_the_environment_has_the_file_and_a_named_file_goes_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "musivum.toml").write_text("missed_beats = 9\n")
    environ = {"MUSIVUM_DATA": str(tmp_path)}
    assert load_settings(None, environ, {}).missed_beats == 9
    assert load_settings(written(tmp_path, ""), environ, {}).missed_beats == 3
    (tmp_path / "other").mkdir()
    assert load_settings(None, environ, {"data": str(tmp_path / "other")}).missed_beats == 3


def test_peers_are_kept_in_the_data_directory_unless_told_otherwise(tmp_path: Path) -> None:
    data = {"data": str(tmp_path)}
    assert load_settings(None, {}, data).snapshot == tmp_path / "peers.json"
    assert load_settings(None, {"MUSIVUM_SNAPSHOT": "/s"}, data).snapshot == Path("/s")
    assert load_settings(None, {"MUSIVUM_SNAPSHOT": "off"}, data).snapshot is None


@pytest.mark.parametrize("http", [["off"], []])
def test_http_can_be_off(http: list[str], tmp_path: Path) -> None:
    assert load_settings(None, {}, {"data": str(tmp_path), "http": http}).http == ()


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("true", True), ("off", False), ("10.1.0.0/16,::1", ("10.1.0.0/16", "::1/128"))],
)
def test_private_addresses_are_allowed_all_or_by_network(
    text: str, allowed: object, tmp_path: Path
) -> None:
    environ = {"MUSIVUM_ALLOW_PRIVATE_ADDRS": text}
    found = load_settings(None, environ, {"data": str(tmp_path)}).allow_private_addrs
    assert (found if isinstance(found, bool | None) else tuple(map(str, found))) == allowed


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"MUSIVUM_HEARTBEAT_SECOND": "1"}, "MUSIVUM_HEARTBEAT_SECONDS"),
        ({"MUSIVUM_HEARTBEAT": "1"}, "MUSIVUM_HEARTBEAT_SECONDS"),
        ({"MUSIVUM_TOKEN": "secret"}, "MUSIVUM_ADMIN_TOKEN"),
        ({"MUSIVUM_QQQ": "1"}, "MUSIVUM_"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(
    environ: Mapping[str, str], named: str, tmp_path: Path
) -> None:
    (variable,) = environ
    with pytest.raises(BadConfig, match=f"{variable}, which is not known.*{named}") as caught:
        load_settings(None, environ, {"data": str(tmp_path)})
    assert "secret" not in str(caught.value)


def test_a_variable_that_is_empty_is_none_and_the_token_is_no_key(tmp_path: Path) -> None:
    environ = {"MUSIVUM_NO_SUCH_KEY": "", TOKEN_VARIABLE: TOKEN, "OTHER_KEY": "1"}
    read = read_settings(None, environ, {"data": str(tmp_path)})
    assert set(read.sources.values()) == {"default", "flag"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("missed_beat = 3", "{file}: 'missed_beat' is not known; the nearest is missed_beats"),
        ("[http]\nlisten = 1", "http = {{'listen': 1}} in {file}: has to be a list of HOST:PORT"),
        ("max_nodes = '7'", "max_nodes = '7' in {file}: has to be a whole number"),
        ("max_nodes = 7.0", "max_nodes = 7.0 in {file}: has to be a whole number"),
        ("max_nodes = true", "max_nodes = True in {file}: has to be a whole number"),
        ("dial_back = 1", "dial_back = 1 in {file}: has to be true or false"),
        ("heal_seconds = nan", "heal_seconds = nan in {file}: has to be a number"),
        ("min_vram_gb = inf", "min_vram_gb = inf in {file}: has to be a number"),
        (f"min_vram_gb = 1{'0' * 400}", "min_vram_gb = 1"),
        ("data = ''", "data = '' in {file}: has to be a path"),
        ('key = "a\\u0000b"', "in {file}: has to be a path"),
        ("key = '~nobody-has-this-name/k'", "in {file}: has to be a path"),
        ("allow = 'x'", "allow = 'x' in {file}: has to be a list of peer ids"),
        ("allow = [1]", "allow = [1] in {file}: has to be a list of peer ids"),
        ("allow = ['x']", "allow in {file}: 'x': "),
        ("exempt = ['10.0.0.1/8']", "exempt in {file}: no network: 10.0.0.1/8 has host bits set"),
        ("bootstrap = ['/ip4/1.2.3.4/tcp/1']", "bootstrap in {file}: a multiaddr without /p2p/"),
        ("listen = ['1.2.3.4']", "listen in {file}: not HOST:PORT, nor a multiaddr: '1.2.3.4'"),
        ("http = ['1.2.3.4']", "http in {file}: not HOST:PORT: '1.2.3.4'"),
        ("missed_beats = 0", "missed_beats = 0: has to be at least 1"),
        ("data = ", "{file}: Invalid value (at line 1"),
    ],
)
def test_what_a_file_may_not_say_is_named(text: str, line: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadConfig) as caught:
        load_settings(file, {}, {})
    assert line.format(file=file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("max_nodes", "many", "'many' in the environment (MUSIVUM_MAX_NODES): has to be a whole"),
        ("heal_seconds", "1,5", "heal_seconds = '1,5' in the environment"),
        ("dial_back", "maybe", "has to be true or false"),
        ("http", "nowhere", "http in the environment (MUSIVUM_HTTP): not HOST:PORT: 'nowhere'"),
    ],
)
def test_what_a_variable_may_not_say_is_named(
    key: str, text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig) as caught:
        load_settings(None, {variable_of(key): text}, {"data": str(tmp_path)})
    assert told in str(caught.value)


def test_no_error_shows_a_password(tmp_path: Path) -> None:
    file = written(tmp_path, 'database_url = ["postgresql://u:s3cret@h/d"]')
    with pytest.raises(BadConfig, match=r"u:\*\*\*@h/d") as caught:
        load_settings(file, {}, {})
    assert "s3cret" not in str(caught.value)


def test_the_example_is_accepted_as_it_is_and_says_the_defaults(tmp_path: Path) -> None:
    usual = MusivumConfig()
    file = written(tmp_path, example())
    found = read_settings(file, {}, {})
    assert replace(found.config, snapshot=None, data=usual.data) == usual
    active = {key for key, source in found.sources.items() if source == "file"}
    assert active == {entry.key.name for entry in keys() if not entry.is_left_out}


def test_the_example_names_every_key_and_each_may_be_set(tmp_path: Path) -> None:
    lines = example().splitlines()
    names = [f"{name} = " for name in KEYS.by_name]
    uncommented = [
        line.removeprefix("# ") if line.removeprefix("# ").startswith(tuple(names)) else line
        for line in lines
    ]
    found = read_settings(written(tmp_path, "\n".join(uncommented)), {}, {})
    assert set(found.sources.values()) == {"file"}


@pytest.mark.parametrize("key", EVERY)
def test_what_is_told_of_a_value_is_what_was_read(key: str, tmp_path: Path) -> None:
    file = written(tmp_path, f"{key} = {EVERY[key][0]}\n")
    value = plain(getattr(load_settings(file, {}, {}), key))
    assert value is None or KEYS.by_name[key].kind.read(value) == wanted(key)


def test_every_flag_sets_a_key() -> None:
    assert set(FLAGS) <= set(KEYS.by_name)


@pytest.mark.parametrize(
    ("text", "addr"),
    [
        ("127.0.0.1:4001", "/ip4/127.0.0.1/tcp/4001"),
        (":0", "/ip4/0.0.0.0/tcp/0"),
        ("localhost:9", "/ip4/127.0.0.1/tcp/9"),
        ("[::1]:4001", "/ip6/::1/tcp/4001"),
        ("/ip6/::/tcp/4001", "/ip6/::/tcp/4001"),
    ],
)
def test_where_to_listen_is_a_host_and_port_or_a_multiaddr(text: str, addr: str) -> None:
    assert listen_addr(text) == addr


@pytest.mark.parametrize(
    "text", ["", "4001", "127.0.0.1", "host:x", "1.2.3:4", "::1:4", "1.2.3.4:65536", "/ip4/x"]
)
def test_what_cannot_be_listened_on_is_named(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        listen_addr(text)
    assert text in str(caught.value)


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    config = MusivumConfig(data=tmp_path / "deep")
    token = admin_token(config, {})
    assert len(bytes.fromhex(token)) == 32
    assert admin_token(config, {}) == find_token(config, {}) == token
    assert config.token_path.read_text() == f"{token}\n"
    assert stat.S_IMODE(config.token_path.stat().st_mode) == 0o600
    assert admin_token(MusivumConfig(data=tmp_path / "other"), {}) != token


def test_programs_that_start_at_once_have_the_same_token(tmp_path: Path) -> None:
    config = MusivumConfig(data=tmp_path)
    found: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(admin_token(config, {}))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {config.token_path.read_text().strip()}
    assert os.listdir(tmp_path) == ["admin.token"]


def test_the_token_of_the_environment_goes_before_the_file_and_makes_none(tmp_path: Path) -> None:
    config = MusivumConfig(data=tmp_path)
    assert admin_token(config, {TOKEN_VARIABLE: f"{TOKEN}\n"}) == TOKEN
    assert os.listdir(tmp_path) == []
    assert admin_token(config, {TOKEN_VARIABLE: ""}) != ""
    assert os.listdir(tmp_path) == ["admin.token"]


def test_who_gives_orders_makes_no_token_and_may_name_its_file(tmp_path: Path) -> None:
    config = MusivumConfig(data=tmp_path)
    with pytest.raises(BadKey, match=f"no admin token {tmp_path}/admin.token: --token-file"):
        find_token(config, {})
    assert os.listdir(tmp_path) == []
    file = tmp_path / "mine"
    file.write_text("m" * 32 + "\r\n")
    file.chmod(0o600)
    assert find_token(config, {TOKEN_VARIABLE: TOKEN}, file) == "m" * 32
    assert find_token(config, {TOKEN_VARIABLE: TOKEN}) == TOKEN


SECRET = "s3cret-"


@pytest.mark.parametrize("token", [SECRET, SECRET * 4 + " " + SECRET, SECRET * 5 + "ö"])
def test_a_variable_that_is_no_token_is_refused_and_not_shown(token: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="MUSIVUM_ADMIN_TOKEN has to be 32 to") as caught:
        admin_token(MusivumConfig(data=tmp_path), {TOKEN_VARIABLE: token})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "mode", "named"),
    [
        (b"", 0o600, "has to be 32 to 1024"),
        (b"x" * 31 + b"\n", 0o600, "has to be 32 to 1024"),
        (b"x" * 1025, 0o600, "has to be 32 to 1024"),
        (b"\xff" * 40, 0o600, "has to be 32 to 1024"),
        (b"x" * 32 + b"\n" + b"y" * 32, 0o600, "on one line"),
        (b"x" * 32, 0o640, "others may use the admin token .* chmod 600"),
        (b"x" * 32, 0o604, "mode 0604"),
    ],
)
def test_a_file_that_is_no_safe_token_is_refused_and_kept(
    data: bytes, mode: int, named: str, tmp_path: Path
) -> None:
    config: Any = MusivumConfig(data=tmp_path)
    config.token_path.write_bytes(data)
    config.token_path.chmod(mode)
    for get in (admin_token, find_token):
        with pytest.raises(BadKey, match=named) as caught:
            get(config, {})
        assert str(config.token_path) in str(caught.value)
        assert "xxx" not in str(caught.value)
    assert config.token_path.read_bytes() == data
