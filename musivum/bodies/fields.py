"""What the bodies are made of: their fields, and the object itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from musivum.bodies.rules import NUMBER
from musivum.nodes.registration import MAX_NAME_CHARS
from tessella.core.configs import MAX_LAYERS

MAX_PEER_ID_CHARS = 64
# A code of the error tree.
MAX_CODE_CHARS = 64
# 9 PB: above this readers of JSON that know doubles alone no longer tell numbers apart.
MAX_BYTES = 1 << 53

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
PeerName = Annotated[str, Field(min_length=1, max_length=MAX_PEER_ID_CHARS)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""32 bytes in hex."""
Device = Literal["cuda", "metal", "cpu"]
WeightWord = Literal["f32", "f16", "bf16", "Q8_0", "INT4"]
KvWord = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
StoredWord = Literal["", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "mixed"]
"""How the matrices of a checkpoint are stored, as `core.numeric` has the words; or nothing."""
Span = tuple[
    Annotated[int, Field(ge=0, le=MAX_LAYERS), NUMBER],
    Annotated[int, Field(ge=1, le=MAX_LAYERS), NUMBER],
]
"""Half-open: [start, stop)."""


class Body(BaseModel):
    """A JSON object whose fields are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoArguments(Body):
    """A question that takes no arguments."""
