"""One file of weights: bytes at an offset, from any thread, without mapping the file.

Pages of a mapped file count as memory of this process, so everything is read into buffers that we
own and free.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tessella.core.errors import BadWeights
from tessella.core.tensors import MIB

# Weights are read, converted and placed this much at a time: a disk is at full speed by then, and
# the buffer beside a tensor stays small.
SLICE_BYTES = 4 * MIB


class WeightsFile:
    """An open file. Whoever opened it calls `close`."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights if there is no such regular file, or it cannot be read."""
        self.path = path
        try:
            # Without O_NONBLOCK, opening a pipe would wait for its writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as exc:
            raise BadWeights(f"{path} is missing") from exc
        except OSError as exc:
            raise BadWeights(f"{path}: {exc.strerror}") from exc
        status = os.fstat(self._fd)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise BadWeights(f"{path} is not a file")

    def fill(self, offset: int, buffer: memoryview) -> None:
        """Fill the whole buffer from `offset` on. Raises BadWeights if the file ends before."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], offset + done)
            except OSError as exc:
                raise BadWeights(f"{self.path}: {exc.strerror}") from exc
            if not count:
                raise BadWeights(f"{self.path} is truncated at byte {offset + done}")
            done += count

    def take(self, offset: int, count: int) -> bytearray:
        """`count` bytes from `offset` on. If there are fewer, BadWeights, before it allocates."""
        if offset + count > self.size:
            raise BadWeights(f"{self.path} is truncated at byte {self.size}")
        data = bytearray(count)
        self.fill(offset, memoryview(data))
        return data

    def close(self) -> None:
        """Close the file. Closing twice is no error; reading afterwards is BadWeights."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def read_small(path: Path, limit: int) -> bytes:
    """A whole file of at most `limit` bytes. Raises BadWeights naming it."""
    file = WeightsFile(path)
    try:
        if file.size > limit:
            raise BadWeights(f"{path} has {file.size} bytes, at most {limit} are read")
        return bytes(file.take(0, file.size))
    finally:
        file.close()
