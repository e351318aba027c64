"""`NeoHookeanModel`: the energy of large elastic deformations."""

from typing import Any

import torch
from torch import Tensor

from tensormesh.assemble.element import ElementAssembler
from tensormesh.functional.elasticity import determinant, lame
from tensormesh.sparse.matrix import SparseMatrix


class NeoHookeanModel(ElementAssembler):
    """Compressible neo-Hookean body; in 2-D, plane strain.

    ``W = mu / 2 (tr C - D) - mu ln J + lam / 2 (ln J)^2`` with ``F = I + grad u``, ``C = F^T F``,
    ``J = det F``. For small displacements it is linear elasticity.

    Parameters
    ----------
    E
        Young's modulus (force per area).
    nu
        Poisson's ratio, between -1 and 0.5 exclusive.

    References
    ----------
    J. Bonet, R. D. Wood, Nonlinear Continuum Mechanics for Finite Element Analysis, Cambridge
    2008, section 6.4.3.
    """

    def __post_init__(self, E: float | Tensor = 1.0, nu: float | Tensor = 0.3) -> None:
        """Set the Lame constants ``lam`` and ``mu`` from `E` and `nu`."""
        self.lam, self.mu = lame(E, nu)

    def element_energy(self, gradu: Tensor) -> Tensor:
        """Energy per volume of the undeformed body; NaN where a cell is turned inside out."""
        F = torch.eye(gradu.shape[0], dtype=gradu.dtype, device=gradu.device) + gradu
        log_j = torch.log(determinant(F))
        shear = (F * F).sum() - gradu.shape[0]
        return self.mu * (shear / 2 - log_j) + self.lam / 2 * log_j**2

    def energy(self, u: Tensor, **call: Any) -> Tensor:  # type: ignore[override]
        """Energy of the displacement `u` ``[n, D]``: 0-d, differentiable.

        Parameters
        ----------
        u
            Displacement of the nodes, also ``[n * D]``.
        **call
            Further arguments of `ElementAssembler.energy`.
        """
        return super().energy(**self._with(u, call))

    def internal_force(self, u: Tensor, **call: Any) -> Tensor:  # type: ignore[override]
        """Derivative ``[n * D]`` of the energy by the displacement; parameters as of `energy`."""
        return super().internal_force(unknown="u", **self._with(u, call))

    def tangent(self, u: Tensor, **call: Any) -> SparseMatrix:  # type: ignore[override]
        """Second derivative ``[n * D, n * D]`` of the energy; parameters as of `energy`."""
        return super().tangent(unknown="u", **self._with(u, call))

    def _with(self, u: Tensor, call: dict[str, Any]) -> dict[str, Any]:
        by_node = u.reshape(u.numel() // self.dimension, self.dimension)
        return {**call, "point_data": {**(call.get("point_data") or {}), "u": by_node}}
