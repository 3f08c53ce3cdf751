"""A conversation in a file: what was said, its session's name, and where its KV lies.

    {"format": "tessella chat", "version": 1, "session": "32 hex digits", "model": "...",
     "place": {"peer_id": "12D3KooW…", "addrs": ["/ip4/…"], "after": "32 hex digits, or none"}
              | {"api_url": "http://…"} | null,
     "system": "...", "turns": [{"role": "user", "content": "..."}, ...]}

Whoever has the file has the conversation and may go on with it: it is its owner's alone. A file
that is none of these is never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tessella.cli.asking import Place
from tessella.cli.conversation import Conversation, check_utf8
from tessella.cli.discovery import api_base
from tessella.cli.private_file import read_file, replace_file
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.completions import MAX_MESSAGES, ChatMessage, CompletionRequest
from tessella.core.errors import BadConfig, InputError
from tessella.core.ids import ModelId
from tessella.core.tickets import REQUEST_ID_BYTES

FORMAT, VERSION = "tessella chat", 1
MAX_SESSION_FILE = 16 * 1024 * 1024
"""Bytes: a request of 4 MiB, with its line ends and quotes escaped."""
_WHAT = "the session file"
_OTHER = "it holds something else"
_ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a session file holds."""

    session: str
    system: str
    turns: tuple[ChatMessage, ...]
    model: str = ""
    place: Place | None = None


def load_session(path: Path) -> Saved | None:
    """What a file holds; None if there is no file. Raises BadConfig that names the file."""
    try:
        text = read_file(path, _WHAT, MAX_SESSION_FILE)
    except FileNotFoundError:
        return None
    try:
        return _saved(json.loads(text))
    except (ValueError, RecursionError):
        reason = "it is not JSON"
    except InputError as exc:
        reason = str(exc)
    raise BadConfig(f"{path} is no session of `tessella chat`: {reason}")


def save_session(path: Path, conversation: Conversation, place: Place | None) -> None:
    """Write a conversation in place of the one in the file. Raises BadConfig."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "session": conversation.session,
        "model": "" if place is None else place.model,
        "place": _place_document(place),
        "system": conversation.system,
        "turns": [{"role": turn.role, "content": turn.content} for turn in conversation.turns],
    }
    replace_file(path, _WHAT, json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def _saved(loaded: object) -> Saved:
    if not isinstance(loaded, dict) or loaded.get("format") != FORMAT:
        raise BadConfig(_OTHER)
    if loaded.get("version") != VERSION:
        raise BadConfig(
            f"its version is {loaded.get('version')!r:.20}, this program reads {VERSION}"
        )
    model, session = ModelId(_text(loaded, "model")), _text(loaded, "session")
    # The rule for a session's name is the request's.
    CompletionRequest(model=model, prompt="x", session=session)
    return Saved(
        session=session,
        system=_text(loaded, "system"),
        turns=_turns(_list(loaded, "turns")),
        model=model,
        place=_place(model, loaded.get("place")),
    )


def _turns(listed: list[object]) -> tuple[ChatMessage, ...]:
    turns = []
    for place, turn in enumerate(listed):
        role = _ROLES[place % 2]
        if not isinstance(turn, dict) or turn.get("role") != role:
            raise BadConfig("its turns are not questions with their answers")
        turns.append(ChatMessage(role, _text(turn, "content")))
    if len(turns) % 2 or len(turns) > MAX_MESSAGES:
        raise BadConfig(f"its turns are not at most {MAX_MESSAGES} questions and answers")
    return tuple(turns)


def _place(model: ModelId, value: object) -> Place | None:
    if not isinstance(value, dict):
        return None
    if "api_url" in value:
        return Place(model=model, api_url=api_base(_text(value, "api_url")))
    peer_id, addrs = _text(value, "peer_id"), _list(value, "addrs")
    found = [parse_peer(f"{addr}/p2p/{peer_id}") for addr in addrs]
    if not found:
        return None
    address = PeerAddress(found[0].peer_id, tuple(addr for each in found for addr in each.addrs))
    return Place(model=model, address=address, after=_after(value.get("after", "")))


def _after(value: object) -> bytes:
    if not isinstance(value, str) or len(value) not in (0, 2 * REQUEST_ID_BYTES):
        raise BadConfig("its ticket is none")
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise BadConfig("its ticket is none") from None


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise BadConfig(f"its {name} is no text")
    check_utf8(f"its {name}", value)
    return value


def _list(fields: Mapping[str, object], name: str) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise BadConfig(f"its {name} is no list")
    return value


def _place_document(place: Place | None) -> Mapping[str, object] | None:
    if place is None:
        return None
    if place.address is None:
        return {"api_url": place.api_url}
    return {
        "peer_id": place.address.peer_id,
        "addrs": list(place.address.addrs),
        "after": place.after.hex(),
    }
