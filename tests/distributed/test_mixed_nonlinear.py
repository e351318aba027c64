"""Energies and residuals of several fields on ranks: what they are in one process."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.assemble.mixed_nonlinear import (
    Follower,
    Heated,
    NavierStokes,
    given,
    of_order,
    smooth_state,
    stretched,
)
from tests.distributed.cases import METHODS, NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

ORDERS = {"tri": 3, "mixed": 2, "tet": 2, "grid": 3}


def assembled(mesh: tm.Mesh, order: int, on: Any, own: Any) -> dict[str, Any]:
    """Vectors and matrices; `on` makes an assembler of a class, `own` an owned slice."""
    heated, flow, pressure = (
        on(of_order(cls, mesh.dim, order)) for cls in (Heated, NavierStokes, Follower)
    )
    fields = {"point_data": heated.at_nodes(own(smooth_state(mesh, heated.layout)))}
    heat, k = fields | given(mesh), fields | {"scalar_data": {"k": 0.3}}
    return {
        "energy": heated.energy(**heat),
        "force": heated.internal_force(**heat),
        "tangent": heated.tangent(**heat),
        "residual": flow(**k),
        "flow": flow.tangent(**k),
        "pressure": pressure(**fields),
        "follower": pressure.tangent(**fields),
    }


def serial(kind: str) -> dict[str, Tensor]:
    mesh = mesh_of(kind).raised(ORDERS[kind])
    found = assembled(mesh, ORDERS[kind], lambda cls: cls.from_mesh(mesh), lambda x: x)
    return {k: x.to_dense() if isinstance(x, tm.SparseMatrix) else x for k, x in found.items()}


def sharded(device_mesh: DeviceMesh | None, kind: str, cut: Any) -> dict[str, Tensor]:
    mesh = mesh_of(kind).raised(ORDERS[kind])
    dmesh = dmesh_of(mesh, device_mesh, cut)
    found = assembled(
        mesh, ORDERS[kind], lambda cls: distributed(cls).from_mesh(dmesh), dmesh.scatter
    )
    for name, x in found.items():
        if isinstance(x, tm.DSparseMatrix):
            found[name] = x.to_single().to_dense()
        elif x.dim():
            found[name] = dmesh.gather(x)
    return found


@pytest.mark.parametrize(("n", "kind"), [(1, "tri"), (2, "tri"), (3, "mixed"), (2, "tet")])
def test_forces_and_tangents_are_the_serial_ones(ranks: RankPool, n: int, kind: str) -> None:
    """features | MixedElementAssembler, MixedNodeAssembler, MixedFacetAssembler: distributed."""
    expected = serial(kind)
    for found in ranks(n, sharded, kind, METHODS[n - 1]):
        for name, x in expected.items():
            torch.testing.assert_close(found[name], x, rtol=1e-11, atol=1e-12, msg=name)


def test_a_rank_that_owns_nothing_takes_part(ranks: RankPool) -> None:
    expected = serial("grid")
    for found in ranks(2, sharded, "grid", NOTHING_OWNED):
        for name, x in expected.items():
            torch.testing.assert_close(found[name], x, rtol=1e-11, atol=1e-12, msg=name)


def test_parts_of_one_process_are_the_whole() -> None:
    expected = serial("mixed")
    for name, x in sharded(None, "mixed", "coordinate").items():
        torch.testing.assert_close(x, expected[name], rtol=1e-11, atol=1e-12, msg=name)


def rubber(device_mesh: DeviceMesh | None) -> list[Tensor]:
    """Stretched: displacement, pressure, and the derivative of its square by the modulus."""
    mesh = mesh_of("grid").raised(2)
    mu = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    if device_mesh is None:
        zeros = lambda h: torch.zeros(h * mesh.n_points).double()  # noqa: E731
        body, z = stretched(mesh, lambda cls: cls.from_mesh(mesh), zeros, mu, 0.2)
        fields = body.at_nodes(z)
        fields["p"].square().sum().backward()
        found = list(fields.values())
    else:
        dmesh = dmesh_of(mesh, device_mesh)
        body, z = stretched(
            mesh,
            lambda cls: distributed(cls).from_mesh(dmesh),
            lambda h: torch.zeros(h * dmesh.index_map.n_owned).double(),
            mu,
            0.2,
            method="direct",
        )
        fields = body.at_nodes(z)
        dmesh.sum(fields["p"].square()).backward()
        found = [dmesh.gather(fields["u"].flatten()).view(-1, 2), dmesh.gather(fields["p"])]
    assert mu.grad is not None
    return [x.detach() for x in (*found, mu.grad)]


@pytest.mark.parametrize("n", [2, 3])
def test_ranks_stretch_rubber_as_one_process(ranks: RankPool, n: int) -> None:
    expected = rubber(None)
    for found in ranks(n, rubber):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
