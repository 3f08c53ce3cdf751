"""What this machine has: devices, their memory, and free ports."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tessella.cli.extras import worker_extra
from tessella.core.errors import BadConfig, PortInUse
from tessella.core.plan import MB

DEVICES = ("cuda", "metal", "cpu")
ALL_INTERFACES = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the wizard is told of a machine; the real one is `this_machine`."""

    devices: tuple[str, ...]
    """Words of the devices that are here, the best first. Never empty."""
    notes: tuple[str, ...]
    """What its owner should know of it."""
    memory_mb: Callable[[str], int | None]
    """MB that a device has free; None where that cannot be told."""
    check_port: Callable[[int], None]
    """Raises PortInUse or BadConfig for a port that cannot be listened on."""


def this_machine() -> Machine:
    """What is here. Takes the seconds that it takes to import torch."""
    try:
        with worker_extra():
            from tessella.engine.device import Device
    except BadConfig as exc:
        return Machine(("cpu",), (f"{exc}: until then no node starts",), memory_mb, check_port)
    found = tuple(device.value for device in Device if device.present)
    return Machine(found, (), memory_mb, check_port)


def memory_mb(device: str) -> int | None:
    """MB that a device has free; None for one that is not here."""
    from tessella.engine.memory import free_memory

    try:
        return free_memory(device) // MB
    # torch raises RuntimeError, or AssertionError, for a device that it was not built for.
    except (ImportError, RuntimeError, AssertionError):
        return None


def read_device(text: str, present: tuple[str, ...]) -> str:
    """The word of a device that is here. Raises BadConfig."""
    word = text.lower()
    if word not in DEVICES:
        raise BadConfig(f"a device is one of {', '.join(DEVICES)}, not {text!r}")
    if word not in present:
        raise BadConfig(f"torch finds no {word} device here; this machine has {', '.join(present)}")
    return word


def read_port(text: str) -> int:
    """The number of a TCP port. Raises BadConfig."""
    if not (text.isdecimal() and text.isascii() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise BadConfig(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)


def check_port(port: int) -> None:
    """Raise PortInUse, or BadConfig, for a port that this user cannot listen on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As listeners do: a port whose last connections are still being forgotten is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ALL_INTERFACES, port))
            probe.listen()
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                raise PortInUse(f"port {port} is taken: another program listens there") from None
            raise BadConfig(f"port {port} cannot be listened on: {exc.strerror}") from None
