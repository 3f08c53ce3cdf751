from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest

from tessella.cli import logs
from tessella.cli.logs import FORMATS, QUIET, configure_logging, handler_of
from tessella.core.errors import BadConfig
from tessella.worker.config import LOG_FORMATS


def written(form: str, message: str, *args: object, **given: Any) -> str:
    """What one record looks like."""
    stream = io.StringIO()
    logger = logging.Logger("tessella.worker.shards")
    logger.addHandler(handler_of(form, stream))
    logger.warning(message, *args, **given)
    return stream.getvalue()


def failed() -> Any:
    try:
        raise ValueError("it is\nbroken\x1b[2J")
    except ValueError as exc:
        return exc


def test_text_is_a_line_a_record() -> None:
    line = written("text", "moving from layers %s to %s", "0:3", "3:6")
    assert line == "WARNING tessella.worker.shards: moving from layers 0:3 to 3:6\n"


def test_json_has_what_a_collector_needs() -> None:
    line = written("json", "%d sessions", 3, extra={"peer": "12D3KooWabc", "layers": {1}})
    assert line.count("\n") == 1
    said = json.loads(line)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said.pop("time"))
    assert said == {
        "level": "warning",
        "logger": "tessella.worker.shards",
        "message": "3 sessions",
        "fields": {"peer": "12D3KooWabc", "layers": "{1}"},
    }


def test_json_keeps_a_traceback_in_its_line() -> None:
    line = written("json", "a bug", exc_info=failed())
    assert line.count("\n") == 1
    assert any("ValueError" in one for one in json.loads(line)["traceback"])


def test_rich_names_the_level_and_the_logger() -> None:
    line = written("rich", "markup [red]stays[/red]")
    assert "WARNING" in line
    assert "tessella.worker.shards: markup [red]stays[/red]" in line


@pytest.mark.parametrize("form", FORMATS)
def test_what_others_wrote_makes_no_second_line_and_steers_no_terminal(form: str) -> None:
    line = written(form, "refused: %s", "a peer\nINFO root: all is well\x1b[2J\x07")
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert "\x07" not in line


@pytest.mark.parametrize("form", ["text", "rich"])
def test_a_traceback_steers_no_terminal(form: str) -> None:
    told = written(form, "a bug", exc_info=failed())
    assert "ValueError" in told
    assert "\x1b" not in told


def test_a_format_that_there_is_not_is_named() -> None:
    with pytest.raises(BadConfig, match="log_format must be one of text, json, rich, not 'yaml'"):
        handler_of("yaml", io.StringIO())


def test_the_formats_are_those_of_the_configuration() -> None:
    assert FORMATS == LOG_FORMATS


def test_libraries_that_tell_every_connection_are_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **settings: given.update(settings))
    levels = {name: logging.getLogger(name).level for name in QUIET}
    try:
        configure_logging("json", io.StringIO())
        assert given["level"] == logging.INFO
        assert [type(one.formatter) for one in given["handlers"]] == [logs.JsonLines]
        assert not logging.getLogger("libp2p.host").isEnabledFor(logging.INFO)
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
