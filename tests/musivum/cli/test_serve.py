"""From flags to what is run, and what is refused before anything is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from musivum.cli import serve as module
from musivum.cli.program import Program
from tessella.core.identity import Identity


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """What `serve` would have run."""
    found: list[Program] = []

    async def live(program: Program) -> None:
        found.append(program)

    monkeypatch.setattr(module, "live", live)
    return found


def test_every_flag_arrives(command: Any, programs: list[Program], tmp_path: Path) -> None:
    other = f"/ip4/192.0.2.1/tcp/4001/p2p/{Identity(b'o' * 32).peer_id}"
    ended = command(
        "serve",
        *("--http", "127.0.0.1:1", "--http", ":2", "--p2p", ":3", "--p2p", "/ip6/::1/tcp/4"),
        *("--data", str(tmp_path / "d"), "--database-url", "sqlite:///x.db", "--bootstrap", other),
        *("--min-vram-mb", "5", "--allow-private-addrs", "--no-dial-back"),
        *("--announce", "/ip4/192.0.2.9/tcp/9"),
        *("--json", "--until-stdin-closes", "--log-level", "error"),
    )
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    (program,) = programs
    config = program.config
    assert config.http == ("127.0.0.1:1", ":2")
    assert config.listen == ("/ip4/0.0.0.0/tcp/3", "/ip6/::1/tcp/4")
    assert config.announce == ("/ip4/192.0.2.9/tcp/9",)
    assert config.data == tmp_path / "d"
    assert config.database == "sqlite:///x.db"
    assert [peer.full()[0] for peer in config.bootstrap] == [other]
    assert (config.min_vram_mb, config.allow_private, config.dial_back) == (5, True, False)
    assert (program.json_lines, program.until_stdin_closes) == (True, True)
    assert program.token == (tmp_path / "d" / "admin.token").read_text().strip()


def test_without_flags_it_is_as_settings_say(
    command: Any, programs: list[Program], home: Path
) -> None:
    (home / "m.toml").write_text(
        'data = "d"\nbootstrap_only = true\ndial_back = false\nallow_private_addrs = true\n'
    )
    assert command("serve", "--config", "m.toml").status == 0
    (program,) = programs
    assert program.config.bootstrap_only
    assert not program.config.dial_back
    assert program.config.allow_private is True
    assert program.identity.peer_id


def test_a_bootstrap_peer_has_a_key_and_takes_no_orders(
    command: Any, programs: list[Program], tmp_path: Path
) -> None:
    data = tmp_path / "d"
    command("serve", "--bootstrap-only", "--data", str(data), "--http", "off")
    assert programs[0].token == ""
    assert programs[0].config.http == ()
    assert [path.name for path in data.iterdir()] == ["musivum.key"]


def test_a_flag_can_refuse_what_the_file_allows(
    command: Any, programs: list[Program], home: Path
) -> None:
    (home / "m.toml").write_text("allow_private_addrs = true\n")
    command("serve", "--config", "m.toml", "--no-allow-private-addrs")
    assert programs[0].config.allow_private is False


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (
            ["--p2p", "nonsense"],
            1,
            "bad_address: listen in --p2p: not HOST:PORT, nor a multiaddr: 'nonsense'",
        ),
        (["--http", "nonsense"], 1, "bad_address: http in --http: not HOST:PORT: 'nonsense'"),
        (["--min-vram-mb", "-1"], 78, "bad_config: min_vram_mb = -1: has to be at least 0"),
        (["--config", "no.toml"], 78, "bad_config: cannot read no.toml: No such file or directory"),
        (["--data", ""], 78, "bad_config: data = '' in --data: has to be a path"),
    ],
)
def test_a_wrong_flag_is_one_line_and_an_error(
    argv: list[str], status: int, line: str, command: Any, programs: list[Program], home: Path
) -> None:
    ended = command("serve", *argv)
    assert (ended.status, ended.out, ended.err) == (status, "", f"musivum: {line}\n")
    assert programs == []
    assert list(home.iterdir()) == []


def test_a_key_that_others_may_read_is_named(command: Any, tmp_path: Path) -> None:
    key = tmp_path / "musivum.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o644)
    ended = command("serve", "--data", str(tmp_path))
    assert ended.status == 1
    assert ended.err == (
        f"musivum: bad_key: others may use the key {key} (mode 0644): chmod 600 it\n"
    )


def test_a_token_that_is_too_short_is_refused_before_a_port_is_opened(
    command: Any, programs: list[Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSIVUM_ADMIN_TOKEN", "s3cret")
    ended = command("serve", "--data", str(tmp_path))
    assert (ended.status, programs) == (78, [])
    assert ended.err.startswith("musivum: bad_config: MUSIVUM_ADMIN_TOKEN has to be ")
    assert "s3cret" not in ended.err
