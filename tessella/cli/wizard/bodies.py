"""What musivum answers the wizard, in the fields it reads. More fields are no error."""

from __future__ import annotations

from typing import Annotated, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from tessella.core.configs import MAX_LAYERS
from tessella.core.errors import BadFrame
from tessella.core.layers import LayerRange

T = TypeVar("T")

MAX_NAME_CHARS = 256
MAX_MODELS = 1000
"""More are not shown to a person; a list of them is no list of models."""
MAX_MB = 1 << 40


def is_name(text: str) -> bool:
    """Whether a text can be the name of a model, on a terminal and in a file."""
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable() and " " not in text


def _printable(text: str) -> str:
    if not is_name(text):
        raise ValueError("no name")
    return text


Name = Annotated[str, AfterValidator(_printable)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Megabytes = Annotated[int, Field(ge=0, le=MAX_MB)]
Price = Annotated[float, Field(ge=0, le=MAX_MB, allow_inf_nan=False)]
Layer = Annotated[int, Field(ge=0, le=MAX_LAYERS)]


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ModelBody(_Read):
    """A model that somebody serves, or loads."""

    model_id: Name
    active_workers: Count
    workers: Count
    health: Name


class StretchBody(_Read):
    """Layers that are missing, or being loaded."""

    start: Layer
    stop: Layer
    claim_mb: Megabytes = 0

    @property
    def layers(self) -> LayerRange:
        """As a range."""
        return LayerRange(self.start, self.stop)

    @model_validator(mode="after")
    def _has_layers(self) -> Self:
        if self.start >= self.stop:
            raise ValueError("no layers")
        return self


class HealthBody(_Read):
    """What of a model is missing, and what layers cost; null where nobody knows the model."""

    total_layers: Layer | None
    holes: Annotated[list[StretchBody], Field(max_length=MAX_LAYERS)]
    loading: Annotated[list[StretchBody], Field(max_length=MAX_LAYERS)]
    mem_per_layer_mb: Price | None
    global_tensor_mb: Price | None
    usable_vram_pct: Annotated[int, Field(ge=1, le=100)]
    min_vram_mb: Megabytes
    replica_claim_mb: Megabytes | None

    @model_validator(mode="after")
    def _is_of_one_model(self) -> Self:
        if any(one.stop > (self.total_layers or 0) for one in (*self.holes, *self.loading)):
            raise ValueError("layers beyond the model")
        return self


class _Assignment(_Read):
    layer_ranges: Annotated[
        list[Annotated[list[Layer], Field(min_length=2, max_length=2)]],
        Field(min_length=1, max_length=1),
    ]

    @model_validator(mode="after")
    def _has_layers(self) -> Self:
        start, stop = self.layer_ranges[0]
        if start >= stop:
            raise ValueError("no layers")
        return self


class PreviewBody(_Read):
    """What a claim would get."""

    assignment: _Assignment
    total_layers: Layer
    is_replica: bool

    @property
    def layers(self) -> LayerRange:
        """The range."""
        start, stop = self.assignment.layer_ranges[0]
        return LayerRange(start, stop)


MODEL_LIST: TypeAdapter[list[ModelBody]] = TypeAdapter(
    Annotated[list[ModelBody], Field(max_length=MAX_MODELS)]
)
HEALTH_BODY = TypeAdapter(HealthBody)
PREVIEW_BODY = TypeAdapter(PreviewBody)


def read_body(kind: TypeAdapter[T], answer: object, path: str) -> T:
    """An answer as the type it should have. Raises BadFrame that names the route and the field."""
    try:
        return kind.validate_python(answer)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise BadFrame(f"{path} answers what no musivum does, at {where}: {first['msg']}") from None
