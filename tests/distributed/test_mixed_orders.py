"""Fields of several orders, and forms of several fields on facets, on ranks: as in one process."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.assemble.stokes import (
    LOAD,
    OSEEN,
    Traction2D,
    fields_of,
    held_but_on_the_right,
    stokes_data,
)
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

# Kind of mesh -> order of the velocity; that of the pressure is one less, that of `w` is 1.
ORDERS = {"tri": 3, "mixed": 4, "tet": 3, "wedge": 3, "grid": 3}


def forms(dim: int, order: int) -> dict[str, Any]:
    """One class a family: on cells and on facets, matrix and vector."""
    fields = {**fields_of(dim, order), "s": tm.Field("t")}

    class Cells(tm.MixedElementAssembler):
        def forward(self, gradu, gradv, p, q, s, t, x):
            coupled = (1 + x[0]) * p * q - p * gradv.trace() + s * gradv[0, 1]
            return (gradu * gradv).sum() + coupled + t * gradu[1, 0] + s * t

    class Load(tm.MixedNodeAssembler):
        def forward(self, v, q, gradt, x):
            return x[0] * v[0] + x[1] * q + gradt[0] * x[0]

    class Facets(tm.MixedFacetBilinearAssembler):
        def forward(self, u, gradu, v, p, q, n, c):
            return (gradu @ n - c * p * n) @ v + (1 + c) * (u @ n) * q

    class Flux(tm.MixedFacetAssembler):
        def forward(self, v, q, t, x, n, c):
            return c * (v @ n) + q * x[0] + t * x[1]

    classes = {"cells": Cells, "load": Load, "facets": Facets, "flux": Flux}
    for cls in classes.values():
        cls.fields = fields  # type: ignore[attr-defined]
    return classes


def assembled(mesh: tm.Mesh, order: int, make: Callable[..., Any]) -> tuple[Any, Any]:
    """Matrix and vector of all four, those on facets on a part of the boundary."""
    of = forms(mesh.dim, order)
    low = {"boundary_mask": mesh.points[:, 1] < 0.7}
    c = {"point_data": {"c": torch.cos(mesh.points[:, 0])}}
    A = make(of["cells"])() + make(of["facets"], **low)(**c)
    return A, make(of["load"])() + make(of["flux"], **low)(**c)


@cache
def serial(kind: str) -> list[Tensor]:
    mesh = mesh_of(kind).raised(ORDERS[kind])
    A, f = assembled(mesh, ORDERS[kind], lambda cls, **kw: cls.from_mesh(mesh, **kw))
    return [A.row, A.col, A.values, f]


def on_ranks(device_mesh: DeviceMesh, kinds: tuple[str, ...]) -> dict[str, list[Tensor]]:
    found = {}
    for kind in kinds:
        mesh = mesh_of(kind).raised(ORDERS[kind])
        dmesh = dmesh_of(mesh, device_mesh, NOTHING_OWNED if kind == "grid" else "spectral")
        make = lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw)  # noqa: B023, E731
        A, f = assembled(mesh, ORDERS[kind], make)
        A = A.to_single()
        found[kind] = [A.row, A.col, A.values, dmesh.gather(f)]
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_assemble_what_one_process_does(ranks: RankPool, n: int) -> None:
    """Also where a rank owns nothing: the ranks agree on the nodes that carry a field.

    features | MixedFacetAssembler, MixedFacetBilinearAssembler: distributed.
    """
    kinds = {1: ("tri",), 2: ("tri", "grid", "mixed"), 3: ("tri", "mixed", "tet", "wedge")}
    for cases in ranks(n, on_ranks, kinds.get(n, ("tri", "wedge")), timeout=120.0):
        for kind, found in cases.items():
            for ours, whole in zip(found, serial(kind), strict=True):
                assert ours.shape == whole.shape, kind
                assert (ours - whole).abs().max() <= 1e-12 * whole.abs().max(), kind


# -- a solution --------------------------------------------------------------------------------


def stokes(mesh: tm.Mesh, make: Callable[..., Any], k: Any, **options: Any) -> tuple[Any, Tensor]:
    """Taylor and Hood's elements of orders 3 and 2, with a traction on the right."""
    oseen, load, traction = (
        type(cls.__name__, (cls,), {"fields": fields_of(2, 3)})
        for cls in (OSEEN[2], LOAD[2], Traction2D)
    )
    asm = make(oseen)
    f = make(load)() + make(traction, boundary_mask=mesh.points[:, 0] > 1 - 1e-9)()
    condenser = tm.Condenser(*held_but_on_the_right(mesh, asm.layout))
    data = stokes_data(mesh) | {"scalar_data": {"k": k}}
    K, b = condenser(asm(**data), f)
    return asm, condenser.recover(K.solve(b, **options))


def solution(device_mesh: DeviceMesh | None) -> list[Tensor]:
    """Fields at all nodes, and the gradient of their squares by the viscosity."""
    mesh = tm.Mesh.gen_rectangle(n=(3, 3)).raised(3)
    k = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    if device_mesh is None:
        asm, x = stokes(mesh, lambda cls, **kw: cls.from_mesh(mesh, **kw), k)
        fields = asm.at_nodes(x)
        (fields["u"].square().sum() + fields["p"].square().sum()).backward()
        found = list(fields.values())
    else:
        dmesh = dmesh_of(mesh, device_mesh)
        make = lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw)  # noqa: E731
        asm, x = stokes(mesh, make, k, method="direct")
        fields = asm.at_nodes(x)
        (dmesh.sum(fields["u"].square()) + dmesh.sum(fields["p"].square())).backward()
        found = [dmesh.gather(fields["u"].flatten()).view(-1, 2), dmesh.gather(fields["p"])]
    assert k.grad is not None
    return [x.detach() for x in (*found, k.grad)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranks_solve_and_differentiate_as_one_process(ranks: RankPool, n: int) -> None:
    """features | MixedFacetAssembler, MixedNodeAssembler, Field: distributed, differentiable."""
    expected = solution(None)
    for found in ranks(n, solution):
        for ours, whole in zip(found, expected, strict=True):
            assert (ours - whole).abs().max() < 1e-8 * whole.abs().max()
