"""Reductions over the stored entries of a row-sharded matrix, in the group of its mesh."""

from typing import Any

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_rows, all_reduce_sum
from tensormesh.distributed.layout import MatrixLayout


class ShardedReductions:
    """What torch-sla's tensors reduce, without its use of the default group.

    Only stored entries count, as in torch-sla. **Each is collective over the device mesh**, and
    gives the same on every rank.
    """

    layout: MatrixLayout
    values: Tensor

    def global_nnz(self) -> int:
        """Number of stored entries over all ranks."""
        return int(self._total(torch.tensor(self.values.numel(), device=self.values.device)))

    def sum(self, axis: Any = None, keepdim: bool = False) -> Tensor:
        """Sum of the entries, or of each column (`axis` 0) or row (1); differentiable.

        Returns
        -------
        Tensor
            Scalar, or ``[n]`` in the input's numbering (``[1, n]``, ``[n, 1]`` with `keepdim`).
        """
        if axis is None:
            return self._total(self.values.sum())
        sums = self._gathered(self._axis_sum(self.values, axis))
        return sums.unsqueeze(_checked_axis(axis)) if keepdim else sums

    def mean(self, axis: Any = None) -> Tensor:
        """Mean of the stored entries, or of each column's or row's; differentiable."""
        if axis is None:
            return self.sum() / max(self.global_nnz(), 1)
        counts = self._gathered(self._axis_sum(torch.ones_like(self.values), axis))
        return self.sum(axis) / counts.real.clamp(min=1)

    def prod(self) -> Tensor:
        """Product of the stored entries."""
        return self._of_each_rank(self.values.prod()).prod()

    def max(self) -> Tensor:
        """Largest stored entry."""
        return self._extremum("max")

    def min(self) -> Tensor:
        """Smallest stored entry."""
        return self._extremum("min")

    def norm(self, ord: Any = "fro") -> Tensor:
        """Norm: ``"fro"``; 1, the largest column sum; ``inf``, the largest row sum.

        Raises
        ------
        NotImplementedError
            For the spectral norm, ``2``.
        ValueError
            For any other.
        """
        if ord == "fro":
            return self._total(self.values.abs().square().sum()).sqrt()
        if ord in (1, float("inf")):
            sums = self._axis_sum(self.values.abs(), 0 if ord == 1 else 1)
            largest = sums.max() if sums.numel() else sums.sum()  # of nothing: 0
            return self._of_each_rank(largest).max()
        if ord == 2:
            raise NotImplementedError("norm(2) needs the whole matrix: use to_single().norm(2)")
        raise ValueError(f"ord must be 'fro', 1 or inf, got {ord!r}")

    # -- pieces ----------------------------------------------------------------------------

    def _total(self, x: Tensor) -> Tensor:
        return all_reduce_sum(x, self.layout.device_mesh)

    def _of_each_rank(self, x: Tensor) -> Tensor:
        """Scalars of all ranks, ``[size]``."""
        return all_gather_rows(x.reshape(1), self.layout.device_mesh)

    def _extremum(self, which: str) -> Tensor:
        if self.values.is_complex():
            raise TypeError(f"{which} of complex entries: take abs() first")
        entries = self.values
        mine = getattr(entries, which)().reshape(1) if entries.numel() else entries
        of_ranks = all_gather_rows(mine, self.layout.device_mesh)
        if not of_ranks.numel():
            raise ValueError(f"{which} of a matrix that stores no entries")
        result: Tensor = getattr(of_ranks, which)()
        return result

    def _axis_sum(self, values: Tensor, axis: Any) -> Tensor:
        """Owned slice of the sums of columns (0) or rows (1)."""
        layout, pattern = self.layout, self.layout.pattern
        if _checked_axis(axis) == 1:
            return values.new_zeros(layout.n_owned).index_add(0, pattern.row, values)
        local = values.new_zeros(layout.n_local).index_add(0, pattern.col, values)
        return layout.halo.scatter_reverse(layout.rows(local)).flatten(0, 1)

    def _gathered(self, owned: Tensor) -> Tensor:
        return self.layout.vectors.gather(owned)


def _checked_axis(axis: Any) -> int:
    if axis not in (0, 1, -1, -2):
        raise ValueError(f"axis must be None, 0 or 1, got {axis!r}")
    return int(axis) % 2
