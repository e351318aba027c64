"""Vibrations of a thin clamped square plate: forms, and the frequencies of Kirchhoff's theory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import skfem
import torch
from scipy.sparse.linalg import eigsh
from skfem.helpers import dd, ddot

import tensormesh as tm

NU, SHEAR = 0.3, 5 / 6  # Poisson's ratio; the shear correction factor
# omega a^2 sqrt(rho t / D), by A. W. Leissa, The free vibration of rectangular plates, J. Sound
# Vib. 31 (1973): by Ritz's method, hence from above.
LEISSA = np.array([35.992, 73.413, 73.413, 108.27, 131.64, 132.24])


class Bending(tm.ElementAssembler):
    """Reissner's and Mindlin's plate of stiffness ``D = 1``: deflection and two rotations.

    The rotations are those of the deflection's gradient as the thickness `t` goes to zero.
    """

    def __post_init__(self, t: float) -> None:
        self.shear = 6 * SHEAR * (1 - NU) / t**2

    def forward(self, u, v, gradu, gradv):
        # Deflection and rotations in the shear strain grad w - theta, [2, 3].
        of_u, of_v = (
            torch.cat([g.unsqueeze(1), -x * torch.eye(2, dtype=g.dtype)], 1)
            for x, g in ((u, gradu), (v, gradv))
        )
        moments = NU * torch.outer(gradv, gradu) + (1 - NU) / 2 * (
            torch.outer(gradu, gradv) + (gradu @ gradv) * torch.eye(2, dtype=gradu.dtype)
        )
        return self.shear * of_v.T @ of_u + torch.nn.functional.pad(moments, (1, 0, 1, 0))


class Inertia(tm.ElementAssembler):
    """Of the deflection and, small, of the rotations."""

    def __post_init__(self, t: float) -> None:
        self.t = t

    def forward(self, u, v):
        return u * v * torch.diag(u.new_tensor([1.0, self.t**2 / 12, self.t**2 / 12]))


def matrices(mesh: tm.Mesh, t: float, make: Callable[..., Any]) -> tuple[Any, Any]:
    """Stiffness and mass of the plate, clamped on its sides."""
    condenser = tm.Condenser(mesh.boundary_mask.repeat_interleave(3))
    return condenser(make(Bending, t=t)())[0], condenser(make(Inertia, t=t)())[0]


def plate(n: int, order: int) -> tm.Mesh:
    return tm.Mesh.gen_rectangle(n=(n, n), element_type="quad").raised(order)


def kirchhoff(n: int, k: int) -> np.ndarray:
    """Frequencies by scikit-fem with Argyris' elements, twice continuously differentiable."""
    side = np.linspace(0, 1, n + 1)
    basis = skfem.Basis(skfem.MeshTri.init_tensor(side, side), skfem.ElementTriArgyris())

    @skfem.BilinearForm
    def bending(u, v, _):
        return ddot(dd(u), dd(v))

    @skfem.BilinearForm
    def inertia(u, v, _):
        return u * v

    K, M = bending.assemble(basis), inertia.assemble(basis)
    free = np.setdiff1d(np.arange(K.shape[0]), clamped(basis))
    K, M = (A[free][:, free].tocsc() for A in (K, M))
    return np.sqrt(np.sort(eigsh(K, k, M, sigma=0, return_eigenvectors=False)))


def clamped(basis: skfem.CellBasis) -> np.ndarray:
    """Unknowns at the sides that are zero: but for the curvature across a side, all."""
    x, y = (np.isclose(c % 1, 0) for c in basis.mesh.p)
    of = basis.nodal_dofs  # u, u_x, u_y, u_xx, u_xy, u_yy
    everywhere = of[np.ix_([0, 1, 2, 4], x | y)].flatten()
    along = [of[5, x], of[3, y]]
    return np.concatenate(
        [everywhere, *along, basis.facet_dofs[:, basis.mesh.boundary_facets()][0]]
    )


def bounds(
    frequencies: np.ndarray, t: float, h: float, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """How far below and above those of Kirchhoff's theory frequencies may be, relatively.

    Below: shear and rotary inertia, ``k^2 t^2 (1 / (6 kappa (1 - nu)) + 1 / 12) / 2`` of a wave
    number ``k`` far from the sides (R. D. Mindlin, J. Appl. Mech. 18, 1951), and twice that, since
    the sides add shear. Above: Galerkin's error, ``(k h)^(2 (p - 1))`` as of derivatives of second
    order (Strang, Fix, theorem 6.1), with a constant that is small for polynomials of degree 4.
    """
    squared = frequencies  # of wave numbers
    below = squared * t**2 * (1 / (6 * SHEAR * (1 - NU)) + 1 / 12)
    return [below, 1e-5 * (squared * h**2) ** (order - 1)]
