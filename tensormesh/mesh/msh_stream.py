"""Numbers one after the other, from the text or the bytes of a section of an MSH file."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Stream(Protocol):
    """The next numbers of a section; `sizes` are the file's unsigned ``size_t``."""

    def ints(self, count: int) -> NDArray[np.int64]:
        """(count,), from ``int``."""
        ...

    def sizes(self, count: int) -> NDArray[np.int64]:
        """(count,), from ``size_t``."""
        ...

    def floats(self, count: int) -> NDArray[np.float64]:
        """(count,), from ``double``."""
        ...


class AsciiStream:
    """A section as text. Integers are exact up to 2^53."""

    def __init__(self, body: bytes) -> None:
        self.numbers = np.fromstring(body.decode(), dtype=np.float64, sep=" ")
        self.position = 0

    def floats(self, count: int) -> NDArray[np.float64]:
        """(count,)."""
        taken = self.numbers[self.position : self.position + count]
        if len(taken) < count:
            raise ValueError("A section of the file is shorter than it says.")
        self.position += count
        return taken

    def ints(self, count: int) -> NDArray[np.int64]:
        """(count,)."""
        return self.floats(count).astype(np.int64)

    sizes = ints


class BinaryStream:
    """A section as bytes; `size_width` is the number of bytes of a ``size_t``."""

    def __init__(self, body: bytes, size_width: int) -> None:
        self.body = body
        self.size_type = np.dtype(f"u{size_width}")
        self.position = 0

    def floats(self, count: int) -> NDArray[np.float64]:
        """(count,)."""
        return self._take(np.dtype(np.float64), count)

    def ints(self, count: int) -> NDArray[np.int64]:
        """(count,)."""
        return self._take(np.dtype(np.int32), count).astype(np.int64)

    def sizes(self, count: int) -> NDArray[np.int64]:
        """(count,)."""
        return self._take(self.size_type, count).astype(np.int64)

    def _take(self, dtype: np.dtype, count: int) -> NDArray:
        stop = self.position + int(count) * dtype.itemsize
        if stop > len(self.body):
            raise ValueError("A section of the file is shorter than it says.")
        taken = np.frombuffer(self.body, dtype, int(count), self.position)
        self.position = stop
        return taken
