"""Manufactured solutions on three ranks: the error falls at the rate of the theory."""

import math

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tests.distributed.cases import dmesh_of
from tests.rank_pool import RankPool


def exact(x: Tensor) -> Tensor:
    """A product of sines plus a linear function, so that the boundary values are not zero."""
    return torch.prod(torch.sin(torch.pi * x), dim=-1) + x.sum(-1)


class Source(tm.NodeAssembler):
    """Minus the Laplacian of `exact`."""

    def forward(self, v, x):
        return x.shape[0] * torch.pi**2 * torch.prod(torch.sin(torch.pi * x)) * v


class SquaredError(tm.NodeAssembler):
    """``(u_h - u)^2 v``: its sum is the square of the error in L2, as the basis sums to one."""

    def forward(self, v, x, u):
        error = u - torch.prod(torch.sin(torch.pi * x)) - x.sum()
        return error**2 * v


def l2_error(device_mesh: DeviceMesh, mesh: tm.Mesh) -> float:
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(Source, dmesh, quadrature_order=6)
    condenser = tm.Condenser(dmesh.boundary_mask, exact(dmesh.parts[0].mesh.points))
    K_i, f_i = condenser(K, f)
    u = condenser.recover(K_i.solve(f_i, rtol=1e-11))
    squared = tm.distributed_node_assemble(
        SquaredError, dmesh, quadrature_order=8, point_data={"u": u}
    )
    return math.sqrt(float(dmesh.sum(squared)))


def errors(device_mesh: DeviceMesh, kind: str, order: int, sizes: list[int]) -> list[float]:
    make = {
        "tri": lambda n: gen_rectangle(n=(n, n), order=order),
        "quad": lambda n: gen_rectangle(n=(n, n), order=order, element_type="quad"),
        "tet": lambda n: gen_cube(n=(n, n, n), order=order),
        "hex": lambda n: gen_cube(n=(n, n, n), order=order, element_type="hex"),
    }[kind]
    return [l2_error(device_mesh, make(n)) for n in sizes]


@pytest.mark.parametrize(
    ("kind", "order", "sizes"),
    [
        ("tri", 1, [12, 24]),
        ("tri", 2, [6, 12]),
        ("quad", 1, [12, 24]),
        ("quad", 2, [6, 12]),
        ("tet", 1, [7, 14]),
        ("tet", 2, [4, 8]),
        ("hex", 1, [7, 14]),
    ],
)
def test_the_error_falls_at_the_rate_of_the_order(
    ranks: RankPool, kind: str, order: int, sizes: list[int]
) -> None:
    coarse, fine = sizes
    for of_coarse, of_fine in ranks(3, errors, kind, order, sizes):
        rate = math.log(of_coarse / of_fine) / math.log(fine / coarse)
        assert rate >= order + 0.9
        assert rate <= order + 1.5  # faster would be an error of the test
        assert of_fine < 0.02
