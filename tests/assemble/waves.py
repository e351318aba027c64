"""A damped plane wave: a complex problem with a known solution, in one process or on ranks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tensormesh as tm

# From a class and further arguments of `from_mesh` to an assembler on some mesh.
Make = Callable[..., Any]

K = 4.0 + 0.3j
TOWARDS = (0.8, 0.6, 0.3)
KINDS = {"tri": (12, 24), "quad": (12, 24), "tet": (6, 12)}


class Helmholtz(tm.ElementAssembler):
    """``grad u . grad v - k^2 m u v``."""

    def forward(self, u, v, gradu, gradv, k, m):
        return gradu @ gradv - k**2 * m * u * v


class Impedance(tm.FacetBilinearAssembler):
    def forward(self, u, v, k):
        return -1j * k * u * v


class ComingIn(tm.FacetAssembler):
    """``(d w / d n - i k w) v`` of the plane wave ``w``."""

    def forward(self, v, x, n, k):
        d = x.new_tensor(TOWARDS[: x.shape[0]])
        return 1j * k * (d @ n - d.norm()) * torch.exp(1j * k * (d @ x) / d.norm()) * v / d.norm()


class SquaredError(tm.NodeAssembler):
    """Sums to the integral of ``|u - w|^2``."""

    def forward(self, v, x, re, im):
        return (torch.complex(re, im) - plane_wave(x)).abs() ** 2 * v


def plane_wave(x: Tensor, k: complex | Tensor = K) -> Tensor:
    """Values at points ``[..., D]``."""
    d = x.new_tensor(TOWARDS[: x.shape[-1]])
    return torch.exp(1j * k * (x @ d) / d.norm())


def rest(mesh: tm.Mesh) -> Tensor:
    """Nodes of the sides but the left one."""
    x = mesh.points.detach()
    return (x[:, 1:] < 1e-6).any(1) | (x > 1 - 1e-6).any(1)


def system(mesh: tm.Mesh, make: Make, k: Any = K) -> tuple[Any, Tensor]:
    """Matrix and right-hand side: the wave comes in through all sides but the left one."""
    constant = {"scalar_data": {"k": k}}
    index = {"point_data": {"m": torch.ones(mesh.n_points, dtype=mesh.dtype)}}
    A = make(Helmholtz)(**index, **constant)
    A = A + make(Impedance, boundary_mask=rest(mesh))(**constant)
    return A, make(ComingIn, boundary_mask=rest(mesh), quadrature_order=6)(**constant)


def solved(mesh: tm.Mesh, make: Make, k: Any = K, **options: Any) -> Tensor:
    """Its solution, which is prescribed on the left."""
    condenser = tm.Condenser(mesh.points[:, 0] < 1e-6, plane_wave(mesh.points, k))
    A, f = condenser(*system(mesh, make, k))
    return condenser.recover(A.solve(f, **options))
