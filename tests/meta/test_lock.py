"""The lock file is whole: what it names fits together, though pip never resolved it here."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tessella.core.identity import Identity

ROOT = Path(__file__).parents[2]
SECTIONS = ("base", "worker", "dev")
# libp2p 0.8.1 asks for fastecdsa 2.3.2, which has no wheel and needs a C compiler and GMP.
OVERRIDES = {("libp2p", "fastecdsa==2.3.2")}
FIRST_WITH_WHEELS = 3
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux"},
    "mac": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
}
PYTHONS = ("3.11", "3.12", "3.13")

Environment = dict[str, str]


def sections() -> dict[str, list[Requirement]]:
    """The pins under each heading, in the order of the file."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if heading := re.match(r"# (\w+): ", line):
            found[heading[1]] = []
        elif line and not line.startswith("#"):
            list(found.values())[-1].append(Requirement(line))
    return found


def pins(*names: str) -> dict[str, str]:
    """Versions by canonical name, as this machine would install them."""
    chosen = [pin for name in names for pin in sections()[name]]
    here = [pin for pin in chosen if pin.marker is None or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in here}


def needs(name: str, extras: frozenset[str], environment: Environment) -> Iterator[Requirement]:
    """What an installed distribution asks for where the environment is this one."""
    for text in importlib.metadata.requires(name) or ():
        wanted = Requirement(text)
        cases = [{**environment, "extra": extra} for extra in {"", *extras}]
        if wanted.marker is None or any(wanted.marker.evaluate(case) for case in cases):
            yield wanted


def unmet(locked: dict[str, str], environment: Environment) -> set[tuple[str, str]]:
    """Requirements of locked distributions, extras included, that the lock does not fulfil."""
    found: set[tuple[str, str]] = set()
    waiting = [(name, frozenset[str]()) for name in locked]
    seen = set()
    while waiting:
        asking = waiting.pop()
        if asking in seen:
            continue
        seen.add(asking)
        for wanted in needs(*asking, environment):
            name = canonicalize_name(wanted.name)
            version = locked.get(name)
            if version is None or not wanted.specifier.contains(version, prereleases=True):
                found.add((asking[0], f"{wanted.name}{wanted.specifier}"))
            elif wanted.extras:
                waiting.append((name, frozenset(wanted.extras)))
    return found


def test_every_line_pins_one_version_once() -> None:
    for pin in (pin for found in sections().values() for pin in found):
        assert re.fullmatch(r"==[\w.+!-]+", str(pin.specifier)), pin
    names = [name for section in SECTIONS for name in pins(section)]
    assert sorted(names) == sorted(set(names))


def test_the_sections_stand_in_the_order_of_who_needs_them() -> None:
    assert tuple(sections()) == SECTIONS
    assert all(found for found in sections().values())
    assert {"torch", "numpy"} <= set(pins("worker"))
    assert not {"torch", "numpy"} & set(pins("base"))


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("upto", [1, 2, 3], ids=SECTIONS)
def test_each_section_is_whole_with_those_above_it(upto: int, platform: str, python: str) -> None:
    environment: Environment = {
        **{key: str(value) for key, value in default_environment().items()},
        **PLATFORMS[platform],
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    assert unmet(pins(*SECTIONS[:upto]), environment) == OVERRIDES


def test_what_is_missing_would_be_seen() -> None:
    locked = pins(*SECTIONS)
    del locked["markupsafe"]
    locked["rich"] = "1.0"
    found = unmet(locked, {key: str(value) for key, value in default_environment().items()})
    assert ("jinja2", "MarkupSafe>=2.0") in found
    assert any(asking == "typer" and wanted.startswith("rich") for asking, wanted in found)


def test_what_is_installed_is_what_is_locked() -> None:
    installed = {name: importlib.metadata.version(name) for name in pins(*SECTIONS)}
    assert installed == pins(*SECTIONS)


def test_the_lock_has_what_the_project_asks_for_in_the_section_that_needs_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {"base": project["dependencies"], **project["optional-dependencies"]}
    # Few run a database server: whoever does asks for its driver by name, and the tests have it.
    asked["dev"] = asked["dev"] + asked.pop("postgres")
    assert set(asked) == set(SECTIONS)
    for section, wanted in asked.items():
        locked = pins(section)
        for requirement in map(Requirement, wanted):
            version = locked[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version, prereleases=True), requirement


def test_the_newer_fastecdsa_signs() -> None:
    from fastecdsa import curve, ecdsa, keys

    assert int(importlib.metadata.version("fastecdsa").split(".")[0]) >= FIRST_WITH_WHEELS
    private, public = keys.gen_keypair(curve.P256)
    signature = ecdsa.sign(b"hello", private, curve=curve.P256)
    assert ecdsa.verify(signature, b"hello", public, curve=curve.P256)
    assert not ecdsa.verify(signature, b"hullo", public, curve=curve.P256)


def test_no_peer_leads_libp2p_to_fastecdsa() -> None:
    """libp2p wrote its P-256 keys for the older one. Only secio uses them, and we speak Noise."""
    import libp2p.crypto.ecc
    import libp2p.crypto.key_exchange  # noqa: F401 - that they can be imported is half of the test
    from libp2p.crypto.keys import KeyType
    from libp2p.crypto.serialization import key_type_to_public_key_deserializer as known

    from p2p.configuration import DEFAULT_LIMITS, safe_host

    assert not {KeyType.ECC_P256.value, KeyType.ECDSA.value} & set(known)
    swarm: Any = safe_host(Identity(bytes(32)), DEFAULT_LIMITS).get_network()
    (security,) = swarm.upgrader.security_multistream.transports
    assert "noise" in security
