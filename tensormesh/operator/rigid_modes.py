"""Rigid motions of a body: what elasticity maps to zero where nothing is held."""

from collections.abc import Callable

import torch
from torch import Tensor


def _alone(x: Tensor) -> Tensor:
    return x


def rigid_modes(points: Tensor, total: Callable[[Tensor], Tensor] = _alone) -> Tensor:
    """Translations, and rotations about the centre of the points, as vectors of length one.

    Parameters
    ----------
    points
        ``[n, D]``, ``D`` from 1 to 3.
    total
        Sum over the ranks, where each has some of the points. Default: they are all here.

    Returns
    -------
    Tensor
        ``[n * D, k]``, unknowns ``point * D + component``, with ``k`` 1, 3 or 6.

    Raises
    ------
    TypeError, ValueError
        If `points` is no tensor of real numbers, or not of shape ``[n, 1 .. 3]``.

    Examples
    --------
    >>> import tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.25)
    >>> K = tm.LinearElasticityElementAssembler.from_mesh(mesh)()
    >>> modes = tm.operator.rigid_modes(mesh.points)
    >>> modes.shape, float((K @ modes).abs().max()) < 1e-12
    (torch.Size([50, 3]), True)
    """
    if not isinstance(points, Tensor) or not points.is_floating_point():
        kind = getattr(points, "dtype", type(points).__name__)
        raise TypeError(f"points must be a tensor of real numbers, got {kind}")
    if points.dim() != 2 or points.shape[1] not in (1, 2, 3):
        raise ValueError(f"points have shape {tuple(points.shape)}; expected [n, D] with D <= 3")
    n, dim = points.shape
    sums = total(torch.cat([points.sum(0), points.new_tensor([n])]))
    arms = points - sums[:-1] / sums[-1].clamp(min=1)
    modes = torch.zeros(
        n, dim, dim + dim * (dim - 1) // 2, dtype=points.dtype, device=points.device
    )
    modes[:, range(dim), range(dim)] = 1.0
    for mode, (a, b) in enumerate(((0, 1), (1, 2), (0, 2))[: modes.shape[2] - dim], start=dim):
        modes[:, a, mode], modes[:, b, mode] = -arms[:, b], arms[:, a]
    norms = total(modes.square().sum((0, 1))).sqrt()
    return modes.flatten(0, 1) / torch.where(norms > 0, norms, 1.0)
