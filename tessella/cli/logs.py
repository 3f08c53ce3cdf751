"""How a program's log looks on stderr: lines for people, lines of JSON for a collector, or rich.

What is logged is data of others too: no text of it makes a second line, or steers a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from tessella.core.errors import BadConfig
from tessella.core.text import one_line
from tessella.tables import console

FORMATS = ("text", "json", "rich")
# They tell each connection that ends; what goes wrong in them is told as a warning.
QUIET = ("libp2p", "httpx", "httpcore", "hypercorn")
# What a record has of its own: all else was given to it as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(form: str, stream: TextIO = sys.stderr) -> None:
    """Write the log of this process in one of FORMATS. Raises BadConfig for another word.

    A root logger that has a handler keeps it, and gets no second one.
    """
    handler = handler_of(form, stream)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def handler_of(form: str, stream: TextIO) -> logging.Handler:
    """What writes a log in one of FORMATS. Raises BadConfig."""
    if form not in FORMATS:
        raise BadConfig(f"log_format must be one of {', '.join(FORMATS)}, not {form!r:.80}")
    if form == "rich":
        return _rich(stream)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    return handler


class Lines(logging.Formatter):
    """`INFO tessella.worker.shards: paused: owner`, and tracebacks below."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        line = f"{record.levelname} {record.name}: {one_line(record.getMessage())}"
        return "\n".join([line, *_traceback(record)])


class JsonLines(logging.Formatter):
    """An object a line: time, level, logger, message, and what else there is under `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "fields": {key: value for key, value in vars(record).items() if key not in _OWN},
        }
        if trace := _traceback(record):
            line["traceback"] = trace
        return json.dumps(line, default=str)


def _traceback(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[0] is None:
        return []
    told = "".join(traceback.format_exception(*record.exc_info))
    return [one_line(line) for line in told.splitlines()]


def _rich(stream: TextIO) -> logging.Handler:
    from rich.logging import RichHandler

    handler = RichHandler(console=console(stream), show_path=False, markup=False, highlighter=None)
    handler.setFormatter(_RichText())
    return handler


class _RichText(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.name}: {one_line(record.getMessage())}"
        return "\n".join([line, *_traceback(record)])
