"""What multi-point constraints are given as."""

from typing import Any

import torch
from torch import Tensor

# Masters may follow masters; a longer chain than this is taken for a cycle.
LONGEST = 64


def checked_terms(
    n: Any, slave: Any, master: Any, coefficient: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Terms as tensors, the coefficients as float64 without a history.

    Raises
    ------
    TypeError
        If `n` or an index is no integer, or a coefficient no real number.
    ValueError
        If lengths differ, or a number is out of range.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise TypeError(f"n must be the number of unknowns, or a matrix of these, got {n!r}")
    for name, index in {"slave": slave, "master": master}.items():
        if not isinstance(index, Tensor) or index.dtype not in (torch.int64, torch.int32):
            kind = getattr(index, "dtype", type(index).__name__)
            raise TypeError(f"{name} must be an integer tensor, got {kind}")
    if coefficient is None:
        coefficient = torch.ones(slave.shape, dtype=torch.float64, device=slave.device)
    if not isinstance(coefficient, Tensor) or coefficient.is_complex():
        kind = getattr(coefficient, "dtype", type(coefficient).__name__)
        raise TypeError(f"coefficient must be a tensor of real numbers or None, got {kind}")
    if not slave.shape == master.shape == coefficient.shape or slave.dim() != 1:
        shapes = [tuple(x.shape) for x in (slave, master, coefficient)]
        raise ValueError(f"slave, master, coefficient must be [n_terms] each, got {shapes}")
    for name, index in {"slave": slave, "master": master}.items():
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
            raise ValueError(f"{name} holds a number outside 0 .. {n - 1}")
    return slave.to(torch.int64), master.to(torch.int64), coefficient.detach().to(torch.float64)


def a_cycle() -> ValueError:
    """What is wrong with chains that do not end."""
    return ValueError("slave, master: unknowns follow each other in a cycle")
