"""What one token id adds to the text, as bytes.

Text is the UTF-8 of all pieces, one after the other. Both kinds of vocabulary that llama and qwen2
models come with allow that, so text can be told token by token, without looking back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import tokenizers

from tessella.core.config_keys import shown
from tessella.core.errors import UnsupportedModel

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "▁"


@dataclass(frozen=True, slots=True)
class Pieces:
    """How the tokens of one vocabulary become bytes."""

    of_token: Callable[[str], bytes]
    strip_first_space: bool
    """Whether a text loses the space before its first word."""


def pieces_of(backend: tokenizers.Tokenizer) -> Pieces:
    """The rule of this tokenizer's decoder. Raises UnsupportedModel naming an unknown one."""
    steps = _steps(backend)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return Pieces(_byte_level, strip_first_space=False)
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and steps[0] == _REPLACE:
        if kinds[3:] == []:
            return Pieces(_byte_fallback, strip_first_space=False)
        if steps[3:] == [_STRIP]:
            return Pieces(_byte_fallback, strip_first_space=True)
    raise UnsupportedModel(f"tokenizer: the decoder {shown(kinds)} is not supported")


_REPLACE = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def _steps(backend: tokenizers.Tokenizer) -> list[dict[str, object]]:
    if backend.decoder is None:
        return []
    decoder = json.loads(backend.decoder.__getstate__())
    steps: list[dict[str, object]] = decoder.get("decoders", [decoder])
    return steps


def byte_alphabet() -> dict[int, str]:
    """The character that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        if byte not in alphabet:
            alphabet[byte] = chr(256 + len(alphabet) - len(plain))
    return alphabet


_BYTE_OF = {char: byte for byte, char in byte_alphabet().items()}


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:
        # An added token is written as it is, not in the alphabet.
        return token.encode()


def _byte_fallback(token: str) -> bytes:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes.fromhex(match[1])
    return token.replace(_SPACE, " ").encode()
