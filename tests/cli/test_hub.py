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
from tessella.core.errors import BadConfig, BadWeights, UnknownModel
from tessella.core.exits import exit_code

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
        self.refused: tuple[int, dict[str, str]] | None = None
        """What every file is answered with, in place of it; a listing too where `is_hidden`."""
        self.is_hidden = False
        self.lost: set[str] = set()
        """Files that are not given."""


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
        elif hub.refused and (hub.is_hidden or "/resolve/" in path):
            status, headers = hub.refused
            self._send(status, b"", headers)
        elif "/resolve/" in path:
            file = path.rpartition("/")[2]
            if file in hub.lost:
                self._send(403, b"")  # after a 5xx the hub's client waits for long
                return
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


@pytest.mark.parametrize("status", [401, 403], ids=["without a token", "with one of another"])
async def test_a_gated_model_says_where_to_ask_and_what_to_set(hub: Hub, status: int) -> None:
    hub.models["org/gated"] = {"config.json": b"{}", "model.safetensors": b"weights"}
    hub.refused = status, {"X-Error-Code": "GatedRepo"}
    with pytest.raises(UnknownModel) as caught:
        await pull("org/gated", quiet)
    assert str(caught.value).startswith("org/gated is gated: ask for access")
    assert str(caught.value).endswith("set HF_TOKEN")
    assert exit_code(caught.value) == 1
    assert not place_of("org/gated").exists()
    hub.refused = None
    assert (await pull("org/gated", quiet)).path == place_of("org/gated")


async def test_a_model_that_nobody_shows_us_may_be_private(hub: Hub) -> None:
    hub.models["org/private"] = {}
    hub.refused, hub.is_hidden = (401, {"X-Error-Code": "RepoNotFound"}), True
    with pytest.raises(UnknownModel, match=r"'org/private' .* HF_TOKEN$"):
        await pull("org/private", quiet)


async def test_a_token_that_the_hub_does_not_know_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    hub.models["org/gated"] = {"config.json": b"{}", "model.safetensors": b"weights"}
    why = {"X-Error-Message": "Invalid credentials in Authorization header"}
    hub.refused, hub.is_hidden = (401, why), True
    with pytest.raises(BadConfig, match=r"^HF_TOKEN: ") as caught:
        await pull("org/gated", quiet)
    assert "hf_of_nobody" not in str(caught.value)
    assert exit_code(caught.value) == 78


SHARDED = {
    "config.json": b"{}",
    "model-00001-of-00002.safetensors": b"first",
    "model-00002-of-00002.safetensors": b"second",
}


@pytest.mark.parametrize("index", [{}, {"model.safetensors.index.json": b"{}"}])
async def test_shards_come_with_an_index_and_without(hub: Hub, index: dict[str, bytes]) -> None:
    hub.models["org/sharded"] = SHARDED | index
    found = await pull("org/sharded", quiet)
    assert {path.name for path in found.path.iterdir()} == {*SHARDED, *index}


async def test_what_broke_off_is_no_model_until_all_of_it_is_there(hub: Hub) -> None:
    hub.models["org/sharded"] = SHARDED
    hub.lost = {"model-00002-of-00002.safetensors"}
    with pytest.raises(DownloadFailed, match="org/sharded"):
        await pull("org/sharded", quiet)
    hub.broken = True
    with pytest.raises(DownloadFailed, match="org/sharded"):
        await pull("org/sharded", quiet)
    assert find_model("org/sharded") is None
    hub.broken, hub.lost = False, set()
    found = await pull("org/sharded", quiet)
    assert {path.name for path in found.path.iterdir()} == {*SHARDED}
