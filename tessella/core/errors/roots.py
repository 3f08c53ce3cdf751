"""The root of the tree, and what is a fault of this machine."""

from __future__ import annotations


class TessellaError(Exception):
    """The root. Raise a leaf."""

    code = "error"
    status = 500
    retry = False

    def told(self) -> str:
        """The sentence that may leave this machine: our own words about the other's input."""
        return str(self)


class LocalError(TessellaError):
    """We broke a rule of our own. Anything that reaches a user through this is a bug here."""

    code = "internal_error"

    def told(self) -> str:
        """Nothing: the details of our bugs stay in our log."""
        return "an internal error; the log of this node has it"


class NotFinite(LocalError):
    """Our own layers produced NaN or Inf: said before it is sent, so no peer is blamed for it."""

    code = "not_finite"

    def told(self) -> str:
        """That it happened: no secret, and no reason to retry the same prompt here."""
        return str(self)


class StoreLost(TessellaError):
    """The database failed us: what is in it is no longer what we know, so the program ends."""

    code = "store_lost"
