"""Stokes problems with a known solution, in two and three dimensions."""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.element.cell_type import cell_type

PI = math.pi


@cache
def fields_of(dim: int, order: int = 2) -> dict[str, tm.Field]:
    return {"u": tm.Field("v", components=dim, order=order), "p": tm.Field("q", order=order - 1)}


class Oseen2D(tm.MixedElementAssembler):
    """Stokes, and transport by ``w`` where it is given."""

    fields = fields_of(2)

    def forward(self, u, gradu, v, gradv, p, q, k, w):
        stokes = k * (gradu * gradv).sum() - p * gradv.trace() - q * gradu.trace()
        return stokes + (gradu @ w) @ v


class Oseen3D(Oseen2D):
    fields = fields_of(3)


class Load2D(tm.MixedNodeAssembler):
    fields = fields_of(2)

    def forward(self, v, x):
        return force(x) @ v


class Load3D(Load2D):
    fields = fields_of(3)


OSEEN: dict[int, type[tm.MixedElementAssembler]] = {2: Oseen2D, 3: Oseen3D}
LOAD: dict[int, type[tm.MixedNodeAssembler]] = {2: Load2D, 3: Load3D}


def velocity(x: Tensor) -> Tensor:
    """Without divergence, ``[..., D]``."""
    s, c = torch.sin(PI * x), torch.cos(PI * x)
    parts = [s[..., 0] * c[..., 1], -c[..., 0] * s[..., 1], s[..., 0]]
    return torch.stack(parts[: x.shape[-1]], dim=-1)


def velocity_gradient(x: Tensor) -> Tensor:
    """``[D, D]`` at a point."""
    return torch.func.jacrev(velocity)(x)


def pressure(x: Tensor) -> Tensor:
    return torch.sin(PI * x[..., 0]) + torch.cos(2 * x[..., 1])


def force(x: Tensor) -> Tensor:
    """``-div grad u + grad p`` at a point."""
    factors = torch.tensor([2.0, 2.0, 1.0], dtype=x.dtype)[: x.shape[0]]
    return PI**2 * factors * velocity(x) + torch.func.grad(pressure)(x)


def conditions(mesh: tm.Mesh, layout: tm.BlockLayout) -> tuple[Tensor, Tensor]:
    """Velocity on the boundary and the pressure at one vertex: mask and values."""
    (cells, *_) = mesh.top_cells().values()
    pinned = torch.zeros(mesh.n_points, dtype=torch.bool)
    pinned[cells[0, 0]] = True
    mask = layout.join({"u": mesh.boundary_mask, "p": pinned})
    return mask, layout.join({"u": velocity(mesh.points), "p": pressure(mesh.points)})


class Traction2D(tm.MixedFacetAssembler):
    """``(grad u n - p n) v`` of the known solution."""

    fields = fields_of(2)

    def forward(self, v, x, n):
        return (velocity_gradient(x) @ n - pressure(x) * n) @ v


def held_but_on_the_right(mesh: tm.Mesh, layout: tm.BlockLayout) -> tuple[Tensor, Tensor]:
    """Velocity on all sides but the right one: mask and values."""
    x = mesh.points
    held = mesh.boundary_mask & ((x[:, 0] < 1 - 1e-9) | (x[:, 1] < 1e-9) | (x[:, 1] > 1 - 1e-9))
    return layout.join({"u": held}), layout.join({"u": velocity(x)})


def stokes_data(mesh: tm.Mesh) -> dict[str, dict[str, Tensor]]:
    return {"point_data": {"w": torch.zeros_like(mesh.points)}, "scalar_data": {"k": 1.0}}


def at_vertices(mesh: tm.Mesh) -> Tensor:
    found = torch.zeros(mesh.n_points, dtype=torch.bool)
    for kind, cells in mesh.top_cells().items():
        found[cells[:, : cell_type(kind).n_vertices].flatten()] = True
    return found


def l2(mesh: tm.Mesh, density: Callable[..., Tensor], **fields: Tensor) -> float:
    asm = tm.ElementAssembler.from_mesh(mesh, quadrature_order=7)
    return float(asm.energy(func=density, point_data=fields)) ** 0.5


def errors(mesh: tm.Mesh, x: Tensor, asm: tm.MixedElementAssembler) -> dict[str, float]:
    """Errors of a solution; the mean of the pressure is no part of it."""
    found = asm.at_nodes(x)
    u, p = found["u"], found["p"]
    ones = tm.ElementAssembler.from_mesh(mesh, quadrature_order=7)
    offset = ones.energy(func=lambda p, x: p - pressure(x), point_data={"p": p})
    volume = ones.energy(func=lambda p: 0 * p + 1, point_data={"p": p})
    p = p - offset / volume
    return {
        "velocity L2": l2(mesh, lambda u, x: ((u - velocity(x)) ** 2).sum(), u=u),
        "velocity H1": l2(mesh, lambda gradu, x: ((gradu - velocity_gradient(x)) ** 2).sum(), u=u),
        "pressure L2": l2(mesh, lambda p, x: (p - pressure(x)) ** 2, p=p),
    }
