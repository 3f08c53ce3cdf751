"""How a program ends by an error: what went wrong, and what a shell is told."""

from __future__ import annotations

from collections.abc import Iterator

from tessella.core.errors import BadConfig, TessellaError

# What a shell is told. sysexits.h: 75 EX_TEMPFAIL, "try again later"; 78 EX_CONFIG, which a
# supervisor need not try again; 1 is any other error.
EXIT_ERROR = 1
EXIT_RETRY = 75
EXIT_CONFIG = 78


def exit_code(error: TessellaError) -> int:
    """The exit status of a command that ends with this error."""
    if isinstance(error, BadConfig):
        return EXIT_CONFIG
    return EXIT_RETRY if error.retry else EXIT_ERROR


def leaves(raised: BaseException) -> Iterator[BaseException]:
    """What was raised, out of all the groups that nurseries put around it, in their order."""
    if isinstance(raised, BaseExceptionGroup):
        for part in raised.exceptions:
            yield from leaves(part)
    else:
        yield raised
