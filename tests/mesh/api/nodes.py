"""A mesh with an HTTP API at every node: a musivum, and three workers with a third each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import trio

from tests.mesh.restarts.musivum_program import free_ports
from tests.mesh.restarts.program import Program

MODEL = "smollm2-135m-instruct"
RANGES = ("0:10", "10:20", "20:30")
CONTEXT = 512
SLOTS = 16
MAX_INPUT_TOKENS = 320
"""What the entry declares. Longest of all prompts here that are answered: some 300."""
TEMPLATE = Path(__file__).parents[2] / "data" / "chatml_tools.jinja"
HOST = "127.0.0.1"
# Far above what any answer here takes on one busy core.
ANSWER_SECONDS = 60.0

Document = dict[str, Any]


@dataclass
class Nodes:
    """The programs of one mesh, and where they answer."""

    directory: Path
    weights: Path
    client: httpx.Client
    """For every thread, and all of them: each client loads certificates anew."""
    over_http: int | None = None
    """Which worker the others can reach over HTTP alone."""
    programs: list[Program] = field(default_factory=list)
    musivum: str = ""
    urls: list[str] = field(default_factory=list)
    """Of the workers, in the order of their layers."""

    @property
    def entry(self) -> str:
        """Where the first stage answers."""
        return self.urls[0]

    async def start(self) -> None:
        """The musivum, then the workers side by side."""
        home = self.directory / "musivum"
        home.mkdir(parents=True)
        args = ["serve", "--p2p", f"{HOST}:0", "--http", f"{HOST}:0", "--data", str(home)]
        ready = await self._begin(Program("musivum.cli", tuple(args), home)).told("ready")
        self.musivum = ready["http"][0]
        workers = [self._worker(number, layers) for number, layers in enumerate(RANGES)]
        for worker in workers:
            await worker.told("ready")
        self.urls = [row["http_api_url"] for row in self.peers()]

    def peers(self) -> list[Document]:
        """What musivum lists, in the order of layers."""
        rows: list[Document] = self.client.get(f"{self.musivum}/peers?model_id={MODEL}").json()
        return sorted(rows, key=lambda row: row["layer_ranges"][0])

    def statuses(self) -> list[Document]:
        """What the workers say of themselves, in the order of layers."""
        return [self.client.get(f"{url}/status").json() for url in self.urls]

    def _worker(self, number: int, layers: str) -> Program:
        home = self.directory / f"worker-{number}"
        home.mkdir(parents=True)
        # A file of its own, so that no operator's is read.
        config = home / "worker_config.toml"
        config.write_text(
            f"[worker]\nparallel_slots = {SLOTS}\ncontext_size = {CONTEXT}\n"
            f"device = 'cpu'\ndtype = 'f32'\nchat_template = '{TEMPLATE}'\n"
            + (only_over_http() if number == self.over_http else here())
            + (f"max_input_tokens = {MAX_INPUT_TOKENS}\n" if number == 0 else "")
        )
        args = ["--config", str(config), "--musivum", self.musivum, "--key", str(home / "node.key")]
        args += ["--model", MODEL, "--weights", str(self.weights), "--claim-mb", "1000"]
        args += ["--layers", layers]
        return self._begin(Program("tessella.cli.worker", tuple(args), home))

    def _begin(self, program: Program) -> Program:
        self.programs.append(program)
        program.start()
        return program

    def close(self) -> None:
        """Leave nothing behind."""
        for program in reversed(self.programs):
            program.end()


def here() -> str:
    """Settings of a node that answers at free ports."""
    return f"p2p_host = '{HOST}'\np2p_port = 0\napi_host = '{HOST}'\napi_port = 0\n"


def only_over_http() -> str:
    """Those of one whose address of libp2p leads nowhere: nobody is told of the real one."""
    nobody, port = free_ports(2)
    return (
        f"p2p_host = '127.0.0.2'\np2p_port = 0\nallow_private_addrs = ['{HOST}/32']\n"
        f"public_ip = '{HOST}'\npublic_p2p_port = {nobody}\n"
        f"api_host = '{HOST}'\napi_port = {port}\n"
    )


def openai_access(nodes: Nodes) -> Document:
    """How OpenAI's clients are told of an entry; with no retries, every error is told."""
    return {
        "base_url": f"{nodes.entry}/v1",
        "api_key": "none is needed",
        "timeout": ANSWER_SECONDS,
        "max_retries": 0,
    }


@contextmanager
def open_nodes(directory: Path, weights: Path, *, over_http: int | None = None) -> Iterator[Nodes]:
    """A mesh for as long as the context lasts; see `Nodes.over_http`."""
    with httpx.Client(timeout=ANSWER_SECONDS) as client:
        nodes = Nodes(directory, weights, client, over_http)
        try:
            trio.run(nodes.start)
            yield nodes
        finally:
            nodes.close()
