"""Direct solution of a small system, gathered on one rank."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import agree, all_gather_ints, exchange
from tensormesh.distributed.system import System
from tensormesh.sparse.direct import direct_solve
from tensormesh.sparse.krylov import Solution
from tensormesh.sparse.krylov.iteration import dots
from tensormesh.sparse.pattern import SparsityPattern

# Unknowns over all ranks that one rank may gather and factor.
LARGEST = 50_000


def direct(system: System, b: Tensor) -> Solution:
    """Factor the whole matrix on the first rank. **Collective over the device mesh.**

    Parameters
    ----------
    system
        The matrix.
    b
        Owned slice of the right-hand side, ``[n_owned]`` or ``[n_owned, k]``.

    Returns
    -------
    Solution
        Of no iterations, with the residual computed anew.

    Raises
    ------
    ValueError
        On every rank, if there are more than 50,000 unknowns.
    SingularMatrixError
        On every rank, if the matrix is singular to rounding.
    """
    matrix, layout = system.matrix, system.matrix.layout
    n = matrix.shape[0]
    if n > LARGEST:
        raise ValueError(
            f"method 'direct' gathers the matrix on one rank, up to {LARGEST} unknowns; this one "
            f"has {n}: use an iterative method"
        )
    components = torch.arange(layout.h, device=b.device)
    number = (layout.index_map.local_to_global.unsqueeze(1) * layout.h + components).flatten()
    pairs = torch.stack([number[layout.pattern.row], number[layout.pattern.col]], dim=1)
    if system.transposed:
        pairs = pairs.flip(1)
    to_first = _Motion(system)
    pairs = to_first.gather(pairs)
    values, right = to_first.gather(matrix.values.detach()), to_first.gather(b)
    found = right
    with agree(layout.device_mesh):
        if to_first.is_first:
            pattern = SparsityPattern(pairs[:, 0], pairs[:, 1], (len(right), len(right)))
            found = direct_solve(pattern, values, right)
    x = to_first.scatter(found, len(b))
    r = b - system @ x
    rr, bb = dots(system.total, (r, r), (b, b)).real
    worst = max((float(r / s) for r, s in zip(rr.flat, bb.flat, strict=True) if s > 0), default=0.0)
    return Solution(x, True, 0, worst**0.5, "direct")


class _Motion:
    """Moves rows of all ranks to the first one, in the order of ranks, and back."""

    def __init__(self, system: System) -> None:
        self._device_mesh = system.matrix.layout.device_mesh
        self.is_first = self._device_mesh.get_local_rank() == 0

    def _counts(self, n: int) -> tuple[list[int], list[int]]:
        """Rows to send and to receive, by rank, for all to arrive at the first."""
        of_ranks = all_gather_ints([n], self._device_mesh).flatten().tolist()
        nothing = [0] * len(of_ranks)
        return [n, *nothing[1:]], of_ranks if self.is_first else nothing

    def gather(self, x: Tensor) -> Tensor:
        sent, received = self._counts(len(x))
        return exchange(x, sent, received, self._device_mesh)

    def scatter(self, x: Tensor, n: int) -> Tensor:
        received, sent = self._counts(n)
        return exchange(x, sent, received, self._device_mesh)
