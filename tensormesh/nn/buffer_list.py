"""A list of tensors that moves with the module that holds it."""

from collections.abc import Iterable, Iterator
from operator import index
from typing import Self

from torch import Tensor, nn

from tensormesh.mesh.buffers import shape_text


class BufferList(nn.Module):
    """List of tensors that is a module: entries follow ``to`` and ``state_dict``.

    Parameters
    ----------
    tensors
        Initial entries, kept as they are.

    Raises
    ------
    TypeError
        If an entry is no tensor.

    Examples
    --------
    >>> import torch
    >>> levels = BufferList([torch.zeros(3), torch.ones(2)])
    >>> levels.double()[-1].dtype
    torch.float64
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.extend(tensors)

    def append(self, tensor: Tensor) -> Self:
        """Add an entry at the end."""
        self._set(len(self), tensor)
        return self

    def extend(self, tensors: Iterable[Tensor]) -> Self:
        """Add entries at the end."""
        for tensor in tensors:
            self.append(tensor)
        return self

    def __getitem__(self, position: int) -> Tensor:
        return self._entries()[self._place(position)]

    def __setitem__(self, position: int, tensor: Tensor) -> None:
        self._set(self._place(position), tensor)

    def __len__(self) -> int:
        return len(self._buffers)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._entries())

    def _entries(self) -> list[Tensor]:
        return [tensor for tensor in self._buffers.values() if tensor is not None]

    def _place(self, position: int) -> int:
        place = index(position)
        place = place + len(self) if place < 0 else place
        if not 0 <= place < len(self):
            raise IndexError(f"There is no entry {position}; there are {len(self)}.")
        return place

    def _set(self, place: int, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Entry {place} must be a tensor, got {type(tensor).__name__}.")
        self.register_buffer(str(place), tensor)

    def extra_repr(self) -> str:
        """Shapes of the entries, one a line."""
        return "\n".join(
            f"{place}: {shape_text(t)}" for place, t in self._buffers.items() if t is not None
        )
