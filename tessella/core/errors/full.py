"""Nobody's fault: we are full, or not ready. Wait, then retry here."""

from __future__ import annotations

from tessella.core.errors.roots import TessellaError


class Busy(TessellaError):
    """Nobody's fault: we are full. Wait, then retry here."""

    code = "busy"
    status = 503
    retry = True


class TooManySessions(Busy):
    """The quota of sessions, streams or KV bytes is in use."""

    code = "too_many_sessions"


class OutOfMemory(Busy):
    """The device has no memory left for this session, which is over; others go on."""

    code = "out_of_memory"


class TooManyHopBodies(Busy):
    """The quota of hop bodies that are read at once is in use."""

    code = "too_many_hop_bodies"


class TooManyRequests(Busy):
    """Asked faster than is answered."""

    code = "too_many_requests"
    status = 429


class StoreUnavailable(Busy):
    """What has to outlive a restart cannot be kept now, so nothing was done."""

    code = "store_unavailable"


class ModelUnavailable(Busy):
    """The mesh cannot render the whole model now; the message names the missing layers.

    `retry_after` is in seconds, where somebody knows; `details` are plain values for a program:
    `state`, `missing` as [start, stop] pairs, `claim_mb`, `progress`, `eta_seconds`.
    """

    code = "model_unavailable"

    def __init__(self, text: str, retry_after: float | None = None, **details: object) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.details = details
