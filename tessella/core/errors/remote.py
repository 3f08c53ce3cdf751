"""A peer broke a rule: close it."""

from __future__ import annotations

from tessella.core.errors.roots import TessellaError


class RemoteError(TessellaError):
    """The peer broke a rule. Its stream is reset; nobody else is disturbed."""

    code = "protocol_error"
    status = 400


class BadFrame(RemoteError):
    """Bytes that are not a frame of this protocol."""

    code = "bad_frame"


class FrameTooLarge(BadFrame):
    """A length above the cap, refused before a byte of the body is kept."""

    code = "frame_too_large"
    status = 413

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of {length} bytes, over the limit of {limit}")
        self.length = length
        self.limit = limit


class BodyTooLarge(RemoteError):
    """An HTTP body above the cap of its route, refused before the rest of it is read."""

    code = "body_too_large"
    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body over the limit of {limit} bytes")
        self.limit = limit


class BadTensor(RemoteError):
    """A tensor whose dtype, shape, size or values are not what this session carries."""

    code = "bad_tensor"


class BadSignature(RemoteError):
    """A signature that does not cover these bytes, for this purpose, by this key."""

    code = "bad_signature"
    status = 401


class StaleRecord(RemoteError):
    """A signed record outside its life: expired, or made in the future."""

    code = "stale_record"
    status = 410


class OutOfTurn(RemoteError):
    """A message that may not come in this state of the conversation."""

    code = "out_of_turn"


class PositionGap(RemoteError):
    """A data frame that builds on more KV than is held here."""

    code = "position_gap"
    status = 409

    def __init__(self, position: int, held: int) -> None:
        super().__init__(f"position {position} is beyond the {held} positions held")
        self.position = position
        self.held = held


class BadLedger(RemoteError):
    """A ledger that is not one unbroken chain of sound entries up to its signed head."""

    code = "bad_ledger"
    status = 409

    def __init__(self, why: str, index: int = 0) -> None:
        super().__init__(f"ledger entry {index}: {why}")
        self.index = index
        """The first entry for which nothing vouches; 0 where the ledger is bad as a whole."""
