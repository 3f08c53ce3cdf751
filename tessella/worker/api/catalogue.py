"""GET /v1/models: which ids may be asked for here."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path

from tessella.core.errors import ModelUnavailable, UnknownModel
from tessella.web.errors import answers
from tessella.worker.api.reading import NoQuery
from tessella.worker.api.rooms import Rooms
from tessella.worker.api.shapes import ModelList, ModelTold

MAX_ID_CHARS = 256
Id = Annotated[str, Path(max_length=MAX_ID_CHARS)]


def add_model_routes(router: APIRouter, rooms: Rooms) -> None:
    """Add both routes."""

    @router.get("/v1/models", summary="/v1/models", responses=answers(429))
    async def models(_: NoQuery) -> ModelList:
        """The model of this node. Its id is what requests call it."""
        return ModelList(data=[_served(rooms)])

    @router.get("/v1/models/{model:path}", summary="/v1/models/ID", responses=answers(404, 429))
    async def model(model: Id, _: NoQuery) -> ModelTold:
        """The same, by its id."""
        if model != rooms.model:
            raise UnknownModel(f"this node serves {rooms.model}, not {model[:80]!r}")
        return _served(rooms)


def _served(rooms: Rooms) -> ModelTold:
    told = ModelTold(id=rooms.model, created=int(rooms.started))
    # Loading is no reason to hide what the model is called.
    with suppress(ModelUnavailable):
        limits = rooms.limits()
        told.context_size, told.max_input_tokens = limits.context_size, limits.max_input_tokens
    return told
