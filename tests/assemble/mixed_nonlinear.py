"""Nonlinear problems of several fields, in one process or on ranks."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.functional import determinant
from tests.assemble.stokes import fields_of

# From a class and further arguments of `from_mesh` to an assembler on some mesh.
Make = Callable[..., Any]
BULK = 1000.0


def gradient_of_deformation(gradu: Tensor) -> Tensor:
    return torch.eye(len(gradu), dtype=gradu.dtype, device=gradu.device) + gradu


class Rubber(tm.MixedElementAssembler):
    """Nearly incompressible, with the pressure as a field: stationary in both."""

    def element_energy(self, gradu, p, mu):
        F = gradient_of_deformation(gradu)
        J = determinant(F)
        shear = mu / 2 * ((F * F).sum() - len(F)) - mu * torch.log(J)
        return shear + p * (J - 1) - p**2 / (2 * BULK)


class Heated(tm.MixedElementAssembler):
    """Values and gradients of both fields, with every other kind of argument."""

    def element_energy(self, u, gradu, p, gradp, x, k, s):
        strain = (gradu + gradu.T) / 2
        elastic = k * (1 + p**2) * (strain * strain).sum() - s * p * gradu.trace()
        return elastic + x[0] * (gradp @ gradp) ** 2 + (u @ u) ** 2 * p


class NavierStokes(tm.MixedNodeAssembler):
    """Residual, whose tangent is not symmetric."""

    def forward(self, v, gradv, q, u, gradu, p, k):
        viscous = k * (gradu * gradv).sum() + (gradu @ u) @ v
        return viscous - p * gradv.trace() - q * gradu.trace()


class Follower(tm.MixedFacetAssembler):
    """A pressure that follows the surface, ``(1 + p) cof(I + grad u) n``, and a flux."""

    def forward(self, v, q, n, gradu, p, u):
        F = gradient_of_deformation(gradu)
        return (1 + p) * determinant(F) * (torch.linalg.inv(F).T @ n) @ v + q * p**2 * (u @ n)


@cache
def of_order(cls: type[Any], dim: int, order: int) -> Any:
    """`cls` with a vector field of an order and a scalar of the one below."""
    return type(cls.__name__, (cls,), {"fields": fields_of(dim, order)})


def smooth_state(mesh: tm.Mesh, layout: tm.BlockLayout) -> Tensor:
    """Fields as a vector."""
    at = layout.points(mesh)
    u = 0.1 * torch.sin(2 * at["u"] + torch.arange(mesh.dim, dtype=mesh.dtype))
    return layout.join({"u": u, "p": torch.cos(at["p"].sum(1))})


def given(mesh: tm.Mesh) -> dict[str, Any]:
    """Further data of `Heated`."""
    cells = {k: 1 + torch.arange(len(c)).to(mesh.points) / 9 for k, c in mesh.top_cells().items()}
    return {"element_data": {"k": cells}, "scalar_data": {"s": 0.7}}


# -- a stretched block of rubber ---------------------------------------------------------------


def stretched(
    mesh: tm.Mesh, make: Make, zeros: Callable[[int], Tensor], mu: Any, stretch: float, **solve: Any
) -> tuple[Any, Tensor]:
    """Its sides at 0 slide, the right one is drawn by `stretch`, the others are free."""
    body = make(of_order(Rubber, mesh.dim, 2))
    x = mesh.points
    held = x < 1e-9
    held[:, 0] |= x[:, 0] > 1 - 1e-9
    shift = torch.zeros_like(x)
    shift[:, 0] = stretch * (x[:, 0] > 1 - 1e-9).to(x)
    layout = body.layout

    def data(z: Tensor, mu: Any) -> dict[str, Any]:
        return {"point_data": body.at_nodes(z), "scalar_data": {"mu": mu}}

    z = tm.newton(
        lambda z, mu: body.internal_force(**data(z, mu)),
        lambda z, mu: body.tangent(**data(z, mu)),
        zeros(layout.h),
        (mu,),
        condenser=tm.Condenser(layout.join({"u": held}), layout.join({"u": shift})),
        rtol=1e-11,
        solve_options=solve,
    )
    return body, z


# -- Kovasznay's flow --------------------------------------------------------------------------

REYNOLDS = 40.0
DECAY = REYNOLDS / 2 - math.sqrt(REYNOLDS**2 / 4 + 4 * math.pi**2)


def kovasznay(x: Tensor) -> tuple[Tensor, Tensor]:
    """Velocity and pressure behind a grid (Proc. Camb. Phil. Soc. 44, 1948)."""
    e, angle = torch.exp(DECAY * x[..., 0]), 2 * math.pi * x[..., 1]
    across = DECAY / (2 * math.pi) * e * torch.sin(angle)
    return torch.stack([1 - e * torch.cos(angle), across], -1), (1 - e**2) / 2
