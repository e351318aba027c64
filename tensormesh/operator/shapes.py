"""Lengths and axes of the vectors that constraints take."""

from typing import Any

from torch import Tensor


def misfit_of_reduced(x: Any, n: int) -> TypeError | ValueError | None:
    """What is wrong with `x` as a vector of `n` unknowns that stay."""
    if not isinstance(x, Tensor):
        return TypeError(f"the reduced vector must be a tensor, got {type(x).__name__}")
    if x.dim() and x.shape[0] == n:
        return None
    return ValueError(f"the reduced vector has shape {tuple(x.shape)}, expected {n} entries")


def beside(x: Tensor, other: Tensor) -> Tensor:
    """`x` ``[n]`` with as many axes as `other` ``[n, ...]``, to broadcast along its columns.

    One that has as many stays as it is.
    """
    return x.reshape(*x.shape, *(1,) * (other.dim() - x.dim()))
