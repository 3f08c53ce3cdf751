"""URLs as they may be shown: without the password."""

from __future__ import annotations

import re

HIDDEN = "***"
# libpq takes password and sslpassword as options of the URL too.
_OPTION = re.compile(r"([?&][^=&]*password[^=&]*=)[^&'\"]*", re.IGNORECASE)


def masked(text: str) -> str:
    """The text without what may be a password; with one that is not escaped, without more."""
    scheme, mark, rest = text.partition("://")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if colon:
        rest = f"{user}:{HIDDEN}{at}{place}"
    return _OPTION.sub(rf"\g<1>{HIDDEN}", f"{scheme}{mark}{rest}")
