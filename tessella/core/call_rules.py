"""What holds for every signed call, whoever makes and whoever reads it: its age, its nonce."""

from __future__ import annotations

from tessella.core.errors import BadFrame

# Seconds a call may be older or newer than the reader's clock: clocks drift, and packets wait.
PAST_SECONDS = 60.0
FUTURE_SECONDS = 30.0
# Twice the window in which a nonce could be accepted again.
NONCE_SECONDS = 180.0
MIN_NONCE_BYTES, MAX_NONCE_BYTES = 8, 64
NONCE_BYTES = 16
"""What we draw ourselves: enough that no two are ever the same."""


def check_nonce(nonce: bytes) -> None:
    """Raises BadFrame for a nonce that is too short to be one, or too long."""
    if not MIN_NONCE_BYTES <= len(nonce) <= MAX_NONCE_BYTES:
        raise BadFrame(f"a nonce has {MIN_NONCE_BYTES} to {MAX_NONCE_BYTES} bytes")


def skew(ahead: float) -> str | None:
    """How far off a call made `ahead` seconds from now is, in words; None within the window."""
    if -PAST_SECONDS <= ahead <= FUTURE_SECONDS:
        return None
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
