"""The operator's token: who has it may give orders. It is never printed, nor part of an error."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from musivum.config import MusivumConfig
from tessella.core.errors import BadConfig, BadKey
from tessella.keys import load_or_create, read_secret, write_secret

TOKEN_VARIABLE = "MUSIVUM_ADMIN_TOKEN"
TOKEN_BYTES = 32
MIN_CHARS = 32
# It travels in a header line, and in a frame beside a manifest.
MAX_CHARS = 1024
_WHAT = "the admin token"
_RULE = f"has to be {MIN_CHARS} to {MAX_CHARS} letters, digits or signs"


def admin_token(config: MusivumConfig, environ: Mapping[str, str]) -> str:
    """The token that orders are checked with, made if there is none.

    MUSIVUM_ADMIN_TOKEN before the file `config.token_path`. Raises BadConfig for a variable that
    is too short, BadKey for a file that others may use, that is too short or cannot be made.
    """
    return _from_environment(environ) or load_or_create(config.token_path, _load, _create)


def find_token(config: MusivumConfig, environ: Mapping[str, str], file: Path | None = None) -> str:
    """The token to give orders with: of `file`, or that of `admin_token`, which is never made.

    Raises as `admin_token`, and BadKey where there is none.
    """
    if file is None and (token := _from_environment(environ)):
        return token
    path = file.expanduser() if file else config.token_path
    try:
        return _load(path)
    except FileNotFoundError:
        raise BadKey(f"there is no admin token {path}: --token-file, or {TOKEN_VARIABLE}") from None


def _from_environment(environ: Mapping[str, str]) -> str:
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if token and not _is_token(token):
        raise BadConfig(f"{TOKEN_VARIABLE} {_RULE}")
    return token


def _load(path: Path) -> str:
    token = read_secret(path, _WHAT, MAX_CHARS + 1).decode(errors="replace").rstrip("\r\n")
    if not _is_token(token):
        raise BadKey(f"{_WHAT} {path} {_RULE}, on one line")
    return token


def _create(path: Path) -> str:
    token = secrets.token_hex(TOKEN_BYTES)
    write_secret(path, _WHAT, f"{token}\n".encode())
    return token


def _is_token(text: str) -> bool:
    visible = text.isascii() and text.isprintable() and " " not in text
    return visible and MIN_CHARS <= len(text) <= MAX_CHARS
