"""What an operator set, read from where it was set: flag > environment > file > default.

kinds     what a value may be, where that is musivum's own
sources   its keys, and the fold of all sources to one `MusivumConfig`
token     the operator's token
reach     what follows from where this machine can be reached
"""

from __future__ import annotations

from musivum.settings.kinds import listen_addr
from musivum.settings.sources import (
    FILE_NAME,
    FLAGS,
    KEYS,
    Settings,
    load_settings,
    read_settings,
    variable_of,
)
from musivum.settings.token import TOKEN_VARIABLE, admin_token, find_token

__all__ = [
    "FILE_NAME",
    "FLAGS",
    "KEYS",
    "TOKEN_VARIABLE",
    "Settings",
    "admin_token",
    "find_token",
    "listen_addr",
    "load_settings",
    "read_settings",
    "variable_of",
]
