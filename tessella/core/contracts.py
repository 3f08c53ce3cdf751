"""What two nodes must share to serve one model together, as a hash that either can work out."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict
from enum import Enum
from functools import lru_cache

from tessella.core.parameters import parameters_of
from tessella.core.shapes import ModelShape


# A tracker works it out for each registration, and most are of a few models.
@lru_cache(maxsize=64)
def contract_of(shape: ModelShape) -> str:
    """SHA-256, in hex, of the shape and the name and shape of every parameter that it implies.

    Not of the element types, so that the same model in another format agrees. Floats count as
    f32: GGUF keeps no more.
    """
    parameters = {name: list(sizes) for name, sizes in parameters_of(shape).items()}
    contract = {"parameters": parameters, "shape": _plain(asdict(shape))}
    return hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return struct.pack("<f", value).hex()
    return value
