"""What an operator or a user gave that cannot be used; the message names it in one line."""

from __future__ import annotations

from tessella.core.errors.roots import TessellaError


class InputError(TessellaError):
    """An operator or a user gave something unusable; the message names it in one line."""

    code = "bad_input"
    status = 400


class BadAddress(InputError):
    """A multiaddr or host:port that cannot be used."""

    code = "bad_address"


class BadConfig(InputError):
    """A key, flag or environment value outside its rule."""

    code = "bad_config"


class BadKey(InputError):
    """An identity file that cannot be read, written or trusted."""

    code = "bad_key"


class BadRequest(InputError):
    """A request that breaks its own rules."""

    code = "bad_request"


class ContextTooLong(BadRequest):
    """The prompt, or the prompt and the answer, do not fit the context."""

    code = "context_length_exceeded"


class InputTooLong(BadRequest):
    """The prompt is over the ceiling that this node publishes: it could not hold it."""

    code = "input_too_long"
    status = 413


class UnsupportedField(BadRequest):
    """A field of a request that cannot be honoured here, by the model or by the engine."""

    code = "unsupported_parameter"

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field


class BadWeights(InputError):
    """A weights file that is missing, torn, or at odds with its own header."""

    code = "bad_weights"


class UnsupportedModel(InputError):
    """An architecture, rope type, activation or quantisation the engine does not have."""

    code = "unsupported_model"


class UnknownModel(InputError):
    """A model name that nobody here has."""

    code = "unknown_model"
    status = 404


class PortInUse(InputError):
    """An address that another program listens on; it may be free later."""

    code = "port_in_use"
    retry = True
