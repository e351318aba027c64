"""Elasticity in Voigt's notation: strains as columns, with engineering shear.

The order is xx, yy, xy in 2-D and xx, yy, zz, yz, xz, xy in 3-D.
"""

import torch
from torch import Tensor

from tensormesh.arguments import check_integer
from tensormesh.functional.elasticity import lame

_PAIRS = {2: ((0, 1),), 3: ((1, 2), (0, 2), (0, 1))}


def voigt_shape_grad(g: Tensor) -> Tensor:
    """Strain of the displacements along each axis by a basis function of gradient `g`.

    Parameters
    ----------
    g
        ``[D]``, 2-D or 3-D.

    Returns
    -------
    Tensor
        ``[3, 2]`` or ``[6, 3]``: ``B^T C B`` is the stiffness of a pair of basis functions.

    Raises
    ------
    ValueError
        If `g` has another shape.
    """
    if g.dim() != 1 or g.shape[0] not in _PAIRS:
        raise ValueError(f"g must have shape [2] or [3], got {tuple(g.shape)}")
    dim, parts = g.shape[0], g.unbind()
    none = torch.zeros_like(parts[0])
    normal = [[parts[i] if i == j else none for j in range(dim)] for i in range(dim)]
    shear = [
        [parts[b] if j == a else parts[a] if j == b else none for j in range(dim)]
        for a, b in _PAIRS[dim]
    ]
    return torch.stack([torch.stack(row) for row in (*normal, *shear)])


def voigt_stiffness(E: float | Tensor, nu: float | Tensor, dim: int = 2) -> Tensor:
    """Isotropic elasticity: the stress of a strain, both in Voigt's notation.

    Parameters
    ----------
    E
        Young's modulus (force per area).
    nu
        Poisson's ratio, between -1 and 0.5 exclusive.
    dim
        2 (plane strain) or 3.

    Returns
    -------
    Tensor
        ``[3, 3]`` or ``[6, 6]``, in the dtype of `E` or `nu` where one is a tensor; differentiable.

    Raises
    ------
    ValueError
        If `dim` or `nu` is out of range.
    """
    check_integer("dim", dim)
    if dim not in _PAIRS:
        raise ValueError(f"dim must be 2 or 3, got {dim}")
    lam, mu = (c if isinstance(c, Tensor) else torch.tensor(c) for c in lame(E, nu))
    n_shear = len(_PAIRS[dim])
    normal = lam.new_ones(dim, n_shear + dim)
    normal[:, dim:] = 0
    ones = torch.cat([normal, lam.new_zeros(n_shear, n_shear + dim)])
    weights = mu.new_tensor([2.0] * dim + [1.0] * n_shear)
    return lam * ones + mu * weights.diag()
