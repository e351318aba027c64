"""What serial and distributed FEM matrices share: identity of the layout, and arithmetic on it."""

from collections.abc import Callable, Hashable
from typing import Any, Self

import torch
from torch import Tensor

Operation = Callable[[Any, Any], Tensor]


class _FEMSparsityMixin:
    """Layout identity by content, and entrywise arithmetic between matrices of one layout.

    A subclass has `values`, gives `layout_signature`, and makes siblings by `_with_values`.
    """

    values: Tensor

    @property
    def layout_signature(self) -> Hashable:
        """Hashable identity of the sparsity: equal exactly for equal layouts."""
        raise NotImplementedError

    def _with_values(self, values: Tensor) -> Self:
        raise NotImplementedError

    def has_same_layout(self, other: Any) -> bool:
        """Whether `other`, a matrix or a `layout_signature`, stores the same entries."""
        return bool(self.layout_signature == getattr(other, "layout_signature", other))

    def _operand(self, other: Any) -> Any:
        """Values of a matrix of the same layout, a number, or one value per stored entry."""
        if isinstance(other, _FEMSparsityMixin):
            if not self.has_same_layout(other):
                raise ValueError(
                    "the two matrices store different entries or belong to different partitions; "
                    "assemble both on the same mesh"
                )
            return other.values
        if isinstance(other, Tensor) and other.dim() > 0 and other.shape != self.values.shape:
            raise ValueError(
                f"a tensor of shape {tuple(other.shape)} does not fit: give a number or one "
                f"value per stored entry, [{self.values.numel()}]"
            )
        if not isinstance(other, Tensor | int | float | complex):
            raise TypeError(f"cannot combine a sparse matrix with {type(other).__name__}")
        return other

    def _entrywise(self, operation: Operation, other: Any) -> Self:
        return self._with_values(operation(self.values, self._operand(other)))

    def __add__(self, other: Any) -> Self:
        return self._entrywise(torch.add, other)

    def __sub__(self, other: Any) -> Self:
        return self._entrywise(torch.sub, other)

    def __mul__(self, other: Any) -> Self:
        return self._entrywise(torch.mul, other)

    def __truediv__(self, other: Any) -> Self:
        return self._entrywise(torch.div, other)

    def __rsub__(self, other: Any) -> Self:
        return self._with_values(self._operand(other) - self.values)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return self._with_values(-self.values)

    def __pow__(self, exponent: float) -> Self:
        return self._with_values(self.values**exponent)

    def __abs__(self) -> Self:
        return self._with_values(self.values.abs())
