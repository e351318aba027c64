"""Strain and stress of small deformations, ``[..., D, D]``; usable inside a weak form."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensormesh.arguments import check_number


def sym(A: Tensor) -> Tensor:
    """Symmetric part ``(A + A^T) / 2`` of square matrices."""
    return (A + A.transpose(-1, -2)) / 2


def skew(A: Tensor) -> Tensor:
    """Antisymmetric part ``(A - A^T) / 2`` of square matrices."""
    return (A - A.transpose(-1, -2)) / 2


def determinant(A: Tensor) -> Tensor:
    """Determinant of square matrices ``[..., D, D]``, ``D <= 3``, by its formula.

    At the points of a form it is many times faster than `torch.linalg.det`, as are its derivatives.

    Raises
    ------
    ValueError
        If the matrices are larger, or not square.
    """
    if A.shape[-2:] == (1, 1):
        return A[..., 0, 0]
    if A.shape[-2:] == (2, 2):
        return A[..., 0, 0] * A[..., 1, 1] - A[..., 0, 1] * A[..., 1, 0]
    if A.shape[-2:] == (3, 3):
        first, second, third = A.unbind(-2)
        return (first * torch.linalg.cross(second, third)).sum(-1)
    raise ValueError(f"determinant takes 1 x 1, 2 x 2 and 3 x 3 matrices, got {tuple(A.shape)}")


def strain(graddisplacement: Tensor) -> Tensor:
    """Small strain of the gradients ``du_i / dx_j`` of displacements."""
    return sym(graddisplacement)


def lame(E: Any, nu: Any) -> tuple[Any, Any]:
    """Lame constants ``lam, mu`` of Young's modulus `E` and Poisson's ratio `nu`.

    Raises
    ------
    ValueError
        If `nu` does not lie between -1 and 0.5.
    TypeError
        If one is neither a number nor a tensor.
    """
    for name, value in {"E": E, "nu": nu}.items():
        if not isinstance(value, Tensor | np.ndarray):
            check_number(name, value)
    ratio = nu.detach() if isinstance(nu, Tensor) else torch.tensor(nu, device="cpu")
    if bool((ratio <= -1).any()) or bool((ratio >= 0.5).any()):
        raise ValueError(f"nu must lie between -1 and 0.5, got {nu}")
    return E * nu / ((1 + nu) * (1 - 2 * nu)), E / (2 * (1 + nu))


def isotropic_stress(strain: Tensor, E: float | Tensor = 1.0, nu: float | Tensor = 0.3) -> Tensor:
    """Stress ``lam tr(eps) I + 2 mu eps`` of a small strain.

    Parameters
    ----------
    strain
        ``[..., D, D]``; in 2-D, plane strain.
    E
        Young's modulus (force per area).
    nu
        Poisson's ratio, between -1 and 0.5 exclusive.

    Returns
    -------
    Tensor
        ``[..., D, D]``, force per area.
    """
    lam, mu = lame(E, nu)
    identity = torch.eye(strain.shape[-1], dtype=strain.dtype, device=strain.device)
    return lam * _trace(strain) * identity + 2 * mu * strain


def deviatoric_stress(stress: Tensor) -> Tensor:
    """Stress without its mean, ``sigma - tr(sigma) / 3 I``.

    Raises
    ------
    ValueError
        If the tensors are not 3 x 3: the mean of a plane state needs its third normal stress.
    """
    if stress.shape[-2:] != (3, 3):
        raise ValueError(
            f"stress must have shape [..., 3, 3], got {tuple(stress.shape)}; complete a plane "
            "state by its third normal stress, nu * (sigma_xx + sigma_yy) in plane strain"
        )
    identity = torch.eye(3, dtype=stress.dtype, device=stress.device)
    return stress - _trace(stress) / 3 * identity


def deviatoric_stress_norm(stress: Tensor) -> Tensor:
    """Frobenius norm of the deviator of a stress.

    The von Mises stress is ``sqrt(3 / 2)`` of it.
    """
    return torch.linalg.matrix_norm(deviatoric_stress(stress))


def _trace(A: Tensor) -> Tensor:
    return A.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
