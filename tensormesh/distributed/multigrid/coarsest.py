"""The coarsest level: small enough to be gathered and inverted on every rank."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_rows, all_reduce_sum
from tensormesh.distributed.multigrid.level import Level

# Eigenvalues below this multiple of the largest are those of motions that nothing holds.
_NO_ENERGY = 1e-12


class Coarsest:
    """Pseudo-inverse of a symmetric matrix whose rows are on all ranks. **Collective to make.**

    Of its absolute value, if it is not positive semi-definite. Directions without energy, as
    constants where nothing holds them, are left alone.

    Parameters
    ----------
    level
        The matrix.
    dtype
        Dtype of the vectors.
    """

    def __init__(self, level: Level, dtype: torch.dtype) -> None:
        layout = level.layout
        self._device_mesh, self._n = layout.device_mesh, level.n_global
        index = layout.rows(torch.arange(layout.n_local, device=layout.pattern.device))
        self._numbers = layout.index_map.local_to_global[:, None] * layout.h + index % layout.h
        self._numbers = self._numbers.flatten()
        inverse = _pseudo_inverse(_gathered(level, self._numbers))
        self._inverse = inverse[self._numbers.cpu()].to(layout.pattern.device, dtype)

    def __matmul__(self, r: Tensor) -> Tensor:
        """Solution at the owned unknowns, or at all local ones. **Collective**, one message.

        Parameters
        ----------
        r
            Right-hand side, ``[n_owned, ...]``, or ``[n_local, ...]`` with contributions of ghosts
            that their owners have not got yet.
        """
        numbers = self._numbers[: r.shape[0]]
        whole = r.new_zeros(self._n, *r.shape[1:]).index_add(0, numbers, r)
        return self._inverse[: r.shape[0]] @ all_reduce_sum(whole, self._device_mesh)


def _gathered(level: Level, numbers: Tensor) -> Tensor:
    """Dense matrix ``[n, n]`` on the host of every rank."""
    layout = level.layout
    row, col = numbers[layout.pattern.row], numbers[layout.pattern.col]
    values = torch.from_numpy(level.matrix.data).to(row.device)
    pairs = all_gather_rows(torch.stack([row, col], dim=1), layout.device_mesh).cpu()
    values = all_gather_rows(values, layout.device_mesh).cpu()
    dense = values.new_zeros(level.n_global, level.n_global)
    return dense.index_put((pairs[:, 0], pairs[:, 1]), values, accumulate=True)


def _pseudo_inverse(matrix: Tensor) -> Tensor:
    """Pseudo-inverse of the absolute value, exactly symmetric: the cycle is to be definite."""
    eigenvalues, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    sizes = eigenvalues.abs()
    held = sizes > _NO_ENERGY * sizes.amax() if len(matrix) else []
    scaled = vectors[:, held] / sizes[held].sqrt()
    return scaled @ scaled.T
