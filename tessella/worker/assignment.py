"""The range that this node is to hold, if any. It may change at any moment.

What it was for stops then: a load, a wait for sessions to end, serving.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tessella.core.errors import LocalError, Refused, RemoteFailure
from tessella.core.layers import LayerRange


class Assignment:
    """One range at a time, of a model of so many layers."""

    def __init__(self, total_layers: int, insists: LayerRange | None) -> None:
        """`insists` is the range that the operator chose: no other is taken later."""
        self._total = total_layers
        self._insists = insists
        self._layers: LayerRange | None = None
        # What runs only while the range is wanted (True) or is not (False).
        self._watches: list[tuple[trio.CancelScope, LayerRange, bool]] = []
        self._woken = trio.Event()
        self._woken.set()

    @property
    def layers(self) -> LayerRange:
        """The range to hold."""
        if self._layers is None:
            raise LocalError("no range was assigned yet")
        return self._layers

    def begin(self, layers: LayerRange) -> LayerRange:
        """Take the range that joining gave. Raises RemoteFailure for one beyond the model."""
        if layers.stop > self._total:
            said = f"musivum assigned layers {layers} of a model of {self._total}"
            raise RemoteFailure("protocol_error", said, retry=False)
        self._layers = layers
        return layers

    def want(self, layers: LayerRange) -> None:
        """Hold this range from now on; the one that is held already changes nothing.

        Raises Refused for layers the model does not have, and for any but those insisted on.
        """
        if layers == self.layers:
            return
        if layers.stop > self._total:
            raise Refused(f"layers {layers} of a model of {self._total}")
        if self._insists is not None and layers != self._insists:
            raise Refused(f"this node was started with layers {self._insists} and keeps to them")
        self._layers = layers
        self._notice()

    @property
    def is_resting(self) -> bool:
        """Whether nothing is to be held for now, whatever is assigned."""
        return not self._woken.is_set()

    def rest(self) -> None:
        """Hold nothing until `wake`."""
        if not self.is_resting:
            self._woken = trio.Event()
            self._notice()

    def wake(self) -> None:
        """Hold what is assigned."""
        self._woken.set()
        self._notice()

    async def awake(self) -> None:
        """Wait until something is to be held."""
        while self.is_resting:
            await self._woken.wait()

    def _wants(self, layers: LayerRange) -> bool:
        return not self.is_resting and layers == self._layers

    def _notice(self) -> None:
        for scope, layers, wanted in self._watches:
            if self._wants(layers) is not wanted:
                scope.cancel()

    @contextmanager
    def while_wanted(self, layers: LayerRange) -> Iterator[trio.CancelScope]:
        """Cancels its body as soon as another range is to be held, or none."""
        with self._watch(layers, True) as scope:
            yield scope

    @contextmanager
    def while_unwanted(self, layers: LayerRange) -> Iterator[trio.CancelScope]:
        """Cancels its body as soon as this range is to be held after all."""
        with self._watch(layers, False) as scope:
            yield scope

    @contextmanager
    def _watch(self, layers: LayerRange, wanted: bool) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as scope:
            if self._wants(layers) is not wanted:
                scope.cancel()
            watch = (scope, layers, wanted)
            self._watches.append(watch)
            try:
                yield scope
            finally:
                self._watches.remove(watch)
