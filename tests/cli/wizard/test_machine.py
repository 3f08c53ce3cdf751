"""What is found out about this machine."""

from __future__ import annotations

import socket
import sys

import pytest

from tessella.cli.wizard.machine import check_port, memory_mb, read_device, read_port, this_machine
from tessella.core.errors import BadConfig, PortInUse


def test_this_machine_has_a_cpu_and_memory() -> None:
    here = this_machine()
    assert here.devices[-1] == "cpu"
    assert here.notes == ()
    memory = here.memory_mb("cpu")
    assert memory is not None
    assert memory > 0


def test_without_torch_there_is_a_cpu_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "tessella.engine.device", raising=False)
    here = this_machine()
    assert here.devices == ("cpu",)
    assert "torch is not installed here" in here.notes[0]
    assert here.memory_mb("cpu")
    assert here.memory_mb("cuda") is None


def test_a_device_that_is_not_here_has_no_memory() -> None:
    assert memory_mb("metal") is None


def test_a_device_is_read_in_any_case() -> None:
    assert read_device("CUDA", ("cuda", "cpu")) == "cuda"


@pytest.mark.parametrize(
    ("text", "told"), [("gpu", "one of cuda, metal, cpu, not 'gpu'"), ("metal", "has cuda, cpu")]
)
def test_what_is_no_device_of_this_machine_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadConfig, match=told):
        read_device(text, ("cuda", "cpu"))


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "http", "8080 ", "٨٠"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="1 to 65535"):
        read_port(text)


@pytest.mark.mesh
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_on_which_somebody_listens_is_taken(host: str) -> None:
    with socket.socket() as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} is taken"):
            check_port(port)
    check_port(port)
