"""What others run a node with: systemd takes the units, and the image is made of what is here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tessella.cli.node import STOP_SECONDS
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadConfig
from tessella.core.exits import exit_code
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.worker.config import WorkerConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
IMAGE = (DEPLOY / "Dockerfile").read_text()
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
HARDENED = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "Restart": "always",
    "RestartSec": "5",
    "KillSignal": "SIGTERM",
}


def settings(unit: Path) -> dict[str, str]:
    """The keys of a unit; of one that comes twice the last."""
    lines = (line.partition("=") for line in unit.read_text().splitlines())
    return {key: value for key, equals, value in lines if equals and not key.startswith("#")}


def test_there_is_a_unit_for_either_program() -> None:
    assert [unit.stem for unit in UNITS] == ["musivum", "tessella-worker"]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_has_nothing_to_say_about_a_unit(unit: Path, tmp_path: Path) -> None:
    # The program is in /opt once it is installed there; here a program has to stand for it.
    text, replaced = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text())
    assert replaced == 1
    copy = tmp_path / unit.name
    copy.write_text(text)
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here"
)
def test_a_unit_that_systemd_does_not_understand_would_be_seen(tmp_path: Path) -> None:
    copy = tmp_path / "wrong.service"
    copy.write_text("[Service]\nExecStart=/bin/true\nProtectSystme=strict\n")
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "ProtectSystme" in ended.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_no_rights_to_spare_and_comes_back(unit: Path) -> None:
    found = settings(unit)
    assert {key: found.get(key) for key in HARDENED} == HARDENED
    assert found["StateDirectory"] in ("tessella", "musivum")
    program = found["ExecStart"].split()[0]
    assert Path(program).name == unit.stem
    assert Path(program).name in SCRIPTS


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_wrong_setting_does_not_loop(unit: Path) -> None:
    assert str(exit_code(BadConfig("wrong"))) in settings(unit)["RestartPreventExitStatus"].split()


def test_a_node_has_the_time_to_drain_before_systemd_kills_it() -> None:
    config = WorkerConfig(
        musivum=(parse_peer(f"/ip4/127.0.0.1/tcp/1/p2p/{Identity(b'1' * 32).peer_id}"),),
        model=ModelId("toy"),
        weights=Path("toy"),
        claim_mb=64,
    )
    seconds = float(settings(DEPLOY / "tessella-worker.service")["TimeoutStopSec"])
    assert seconds > config.drain_seconds + STOP_SECONDS


def instructions(name: str) -> list[list[str]]:
    """The words of every such instruction of the Dockerfile."""
    joined = IMAGE.replace("\\\n", " ")
    found = re.findall(rf"(?m)^{name} (.+)$", joined)
    return [shlex.split(line.replace("[", "").replace("]", "").replace(",", " ")) for line in found]


def test_the_image_is_made_of_what_is_here() -> None:
    sources = [word for words in instructions("COPY") for word in words[:-1]]
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert {"requirements.lock", "pyproject.toml", "tessella", "p2p"} <= set(sources)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = wanted["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(sources)
    # What the build reads of them besides.
    assert {wanted["project"]["readme"], *wanted["project"]["license-files"]} <= set(sources)


def test_the_image_has_the_versions_of_the_lock_file() -> None:
    (installed,) = [line for line in IMAGE.splitlines() if "-r /tmp/pins.txt" in line]
    assert "--no-deps" in installed
    lock = (ROOT / "requirements.lock").read_text()
    assert "\n# dev" in lock
    assert re.search(r"(?m)^torch==[0-9.]+ ", lock), "the pin that the image takes torch from"


def test_the_image_runs_as_nobody_special_on_the_ports_of_a_node() -> None:
    assert instructions("USER") == [["tessella"]]
    assert instructions("EXPOSE") == [["8080", "9080"]]
    assert instructions("ENTRYPOINT") == [["tessella-worker"]]
    assert IMAGE.index("\nUSER ") < IMAGE.index("\nENTRYPOINT ")
    ((*volumes,),) = instructions("VOLUME")
    assert volumes == ["/app/models", "/home/tessella/.config/tessella"]
    assert "/health" in IMAGE
