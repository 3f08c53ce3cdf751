"""What docs/wire.md says in bytes and tables is what peers send."""

from __future__ import annotations

import base64
import dataclasses
import re
from pathlib import Path

import msgpack
import pytest

from p2p.limits import CAPS, caps_of
from tessella.core.errors import BadSignature
from tessella.core.messages import KINDS, AskStatus, encode
from tessella.core.records import mesh_key, model_key, node_key, open_record
from tests.core.recorded import NODE, NOW, RECORD

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
ROW = re.compile(r"^\| (\d+) \| (\w+) \|(.*)\|$", re.MULTILINE)


def messages() -> list[tuple[int, str, str]]:
    """The rows of the table of messages: kind, name, fields."""
    table = PAGE.partition("## Messages")[2].partition("## ")[0]
    return [(int(kind), name, fields.strip()) for kind, name, fields in ROW.findall(table)]


def example(name: str) -> bytes:
    """The bytes that stand in hex behind a name, in as many lines as they take."""
    found = re.search(rf"^{name} +((?:[0-9a-f]+\n +)*[0-9a-f]+)$", PAGE, re.MULTILINE)
    assert found, name
    return bytes.fromhex("".join(found[1].split()))


def test_every_message_stands_on_the_page_with_its_number_and_its_fields() -> None:
    ours = [
        (kind, message.__name__, ", ".join(each.name for each in dataclasses.fields(message)))
        for kind, message in enumerate(KINDS)
    ]
    assert messages() == ours


def bytes_of(said: str) -> int:
    """`1 MiB + 64 KiB` in bytes."""
    units = {"KiB": 1024, "MiB": 1024 * 1024}
    parts = [part.split() for part in said.split(" + ")]
    return sum(int(number) * units[unit] for number, unit in parts)


def test_the_caps_of_streams_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| `(/\S+)` \| ([^|`]+ [KM]iB) \| ([^|]+ [KM]iB) \|$", PAGE, re.MULTILINE)
    told = {protocol: (bytes_of(asks), bytes_of(answers)) for protocol, asks, answers in rows}
    assert told.keys() >= CAPS.keys()
    ours = {protocol: caps_of(protocol) for protocol in told}
    assert told == {protocol: (caps.asks, caps.answers) for protocol, caps in ours.items()}


def test_the_record_of_a_node_is_one_that_a_reader_takes() -> None:
    assert NODE.peer_id in PAGE
    payload, signature = example("payload"), example("signature")
    data = msgpack.packb([payload, signature])
    assert data[:1] == b"\x92"
    assert open_record(data, node_key(NODE.peer_id), NOW) == RECORD
    altered = msgpack.packb([payload[:-1] + b"\1", signature])
    with pytest.raises(BadSignature):
        open_record(altered, node_key(NODE.peer_id), NOW)


def test_the_question_for_a_status_is_these_bytes() -> None:
    (said,) = re.findall(r"question is the six bytes `([0-9a-f ]+)`", PAGE.replace("\n", " "))
    assert bytes.fromhex(said) == encode(AskStatus())


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("nodes of a model", model_key("toy")),
        ("of just these tensors", model_key("toy", "ab")),
        ("of any model", mesh_key()),
    ],
)
def test_a_provider_is_found_under_the_identifier_on_the_page(row: str, key: bytes) -> None:
    (said,) = re.findall(rf"^\| {row} \|.*\| `b(\w+)` \|$", PAGE, re.MULTILINE)
    padded = said.upper() + "=" * (-len(said) % 8)
    version_and_codec = bytes([1, 0x55])
    assert base64.b32decode(padded) == version_and_codec + key
