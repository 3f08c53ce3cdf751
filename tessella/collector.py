"""The garbage collector, in a program that others wait for."""

from __future__ import annotations

import gc


def spare_the_collector() -> None:
    """Have the collector leave alone, from here on, whatever is alive.

    That is three hundred thousand objects of libraries, through which it would go for a fifth of a
    second each time, while everybody waits. What dies of it later is not given back where it is in
    a cycle, unless by another call: call this where what lives now lives on.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
