"""Dictionaries of tensors that move with the module that holds them."""

from collections.abc import Iterator, Mapping
from typing import cast

from torch import Tensor, nn


class BufferDict(nn.Module):
    """Dictionary of tensors that is a module: entries follow ``to`` and ``state_dict``.

    Entries whose name is an identifier are persistent buffers and can be read as attributes, unless
    the module has an attribute of that name. Others, for instance ``"gmsh:dim_tags"``, are moved
    and converted likewise, but are not in the ``state_dict``.

    Parameters
    ----------
    tensors
        Initial entries; the tensors are kept as they are, the mapping itself is not.

    Raises
    ------
    TypeError
        If a name is no string or a value is no tensor.

    Examples
    --------
    >>> import torch
    >>> data = BufferDict({"u": torch.zeros(3)})
    >>> data.double()["u"].dtype
    torch.float64
    """

    def __init__(self, tensors: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        for name, tensor in (tensors or {}).items():
            self[name] = tensor

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        if not isinstance(name, str):
            raise TypeError(f"The name of an entry must be a string, got {name!r}.")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Entry {name!r} must be a tensor, got {type(tensor).__name__}.")
        self._parameters.pop(name, None)
        self._buffers.pop(name, None)
        # Not register_buffer and register_parameter: they refuse names of data that files may have,
        # such as "type", "T.x".
        if isinstance(tensor, nn.Parameter):
            self._parameters[name] = tensor
            return
        self._buffers[name] = tensor
        if not name.isidentifier():
            self._non_persistent_buffers_set.add(name)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._buffers.get(name, self._parameters.get(name))
        if tensor is None:
            raise KeyError(f"No entry {name!r}; there are {', '.join(self) or 'none'}.")
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._buffers or name in self._parameters

    def __len__(self) -> int:
        return len(self._buffers) + len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        yield from self._buffers
        yield from self._parameters

    def keys(self) -> Iterator[str]:
        """Names of the entries."""
        return iter(self)

    def values(self) -> Iterator[Tensor]:
        """Tensors of the entries."""
        return (self[name] for name in self)

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Pairs of name and tensor."""
        return ((name, self[name]) for name in self)

    def to_dict(self) -> dict[str, Tensor]:
        """Give a plain dictionary of the same tensors."""
        return dict(self.items())

    def clone(self) -> "BufferDict":
        """Copy the entries; gradients flow back to the originals."""
        return BufferDict({name: tensor.clone() for name, tensor in self.items()})

    def as_parameter(self, name: str) -> "BufferDict":
        """Make entry `name` a trainable parameter."""
        self[name] = nn.Parameter(self[name].detach())
        return self

    def as_buffer(self, name: str) -> "BufferDict":
        """Make entry `name` a buffer again."""
        self[name] = self[name].detach()
        return self

    def extra_repr(self) -> str:
        """Shapes of the entries, one a line."""
        return "\n".join(f"{name}: {shape_text(tensor)}" for name, tensor in self.items())


class BufferDicts(nn.ModuleDict):
    """Dictionary of buffer dictionaries that takes any name, also ``"type"`` or ``"a.b"``."""

    def __getitem__(self, name: str) -> BufferDict:
        return cast(BufferDict, super().__getitem__(name))

    def __setitem__(self, name: str, data: nn.Module) -> None:
        # Not add_module: it refuses names that the class has, and dots.
        self._modules[name] = data


def shape_text(tensor: Tensor) -> str:
    """Shape and dtype as a few characters, for instance ``[4, 3] float64``."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
