"""The hub's client against a hub on the loopback interface."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tessella.catalogue import find_model, place_of
from tessella.cli.failure import DownloadFailed
from tessella.cli.pull import pull
from tessella.core.errors import BadWeights, UnknownModel

pytestmark = [pytest.mark.mesh, pytest.mark.usefixtures("home")]

COMMIT = "0" * 39 + "1"


class Hub(ThreadingHTTPServer):
    """Models as files by name; what it was asked for is kept."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.models: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []
        self.broken = False


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server
        assert isinstance(hub, Hub)
        path = self.path.partition("?")[0].removeprefix("/api/models").strip("/")
        name, files = "/".join(path.split("/")[:2]), None
        files = hub.models.get(name)
        if hub.broken:
            self._send(500, b"")
        elif files is None:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif "/resolve/" in path:
            file = path.rpartition("/")[2]
            if self.command == "GET":
                hub.asked.append(file)
            tag = hashlib.sha1(files[file], usedforsecurity=False).hexdigest()
            self._send(200, files[file], {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})
        else:
            listed = [
                {
                    "type": "file",
                    "rfilename": file,
                    "path": file,
                    "size": len(data),
                    "oid": "0" * 40,
                }
                for file, data in files.items()
            ]
            page: object = {"id": name, "sha": COMMIT, "siblings": listed}
            self._send(200, json.dumps(listed if "/tree/" in path else page).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the stdlib's name
        """Nobody reads this log."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        yield server
        server.shutdown()
        thread.join()


def quiet(_: str) -> None:
    """Nobody listens."""


async def test_a_model_of_the_hub_is_fetched_once_and_without_what_it_does_not_need(
    hub: Hub,
) -> None:
    wanted = {"config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"{}"}
    hub.models["org/tiny"] = {**wanted, "pytorch_model.bin": b"pickle", "README.md": b"#"}
    found = await pull("org/tiny", quiet)
    assert {path.name: path.read_bytes() for path in found.path.iterdir()} == wanted
    assert sorted(hub.asked) == sorted(wanted)
    hub.broken = True
    assert await pull("org/tiny", quiet) == found == find_model("org/tiny")


async def test_a_model_the_hub_lacks_is_named(hub: Hub) -> None:
    with pytest.raises(UnknownModel, match="'org/nothing'"):
        await pull("org/nothing", quiet)
    assert not place_of("org/nothing").exists()


async def test_a_hub_in_trouble_may_be_better_later(hub: Hub) -> None:
    hub.models["org/tiny"] = {"config.json": b"{}", "model.safetensors": b"weights"}
    hub.broken = True
    with pytest.raises(DownloadFailed, match="org/tiny"):
        await pull("org/tiny", quiet)
    assert not place_of("org/tiny").exists()
    hub.broken = False
    assert (await pull("org/tiny", quiet)).path == place_of("org/tiny")


async def test_no_network_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(DownloadFailed, match="org/tiny"):
        await pull("org/tiny", quiet)


async def test_a_model_without_safetensors_is_refused(hub: Hub) -> None:
    hub.models["org/old"] = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    with pytest.raises(BadWeights, match="org/old"):
        await pull("org/old", quiet)
    assert not place_of("org/old").exists()
