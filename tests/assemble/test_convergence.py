"""Manufactured Poisson problems: the order at which the L2 error falls."""

import math

import pytest
import torch

from tensormesh.assemble import LaplaceElementAssembler, NodeAssembler, func_node_assembler
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.operator import Condenser


def exact(x):
    return torch.sin(math.pi * x).prod(dim=-1) + x[..., 0]


class SquaredError(NodeAssembler):
    def forward(self, v, w, x):
        return (w - exact(x)) ** 2 * v  # the v sum to one


def error(mesh):
    """L2 error of the solution of -div grad u = f with u prescribed on the boundary."""
    dim = mesh.dim
    load = func_node_assembler(lambda x: dim * math.pi**2 * torch.sin(math.pi * x).prod())
    f = load.from_mesh(mesh, quadrature_order=7)()
    condenser = Condenser(mesh.boundary_mask, exact(mesh.points))
    K, b = condenser(LaplaceElementAssembler.from_mesh(mesh)(), f)
    u = condenser.recover(K.solve(b))
    return float(SquaredError.from_mesh(mesh, 8)(point_data={"w": u}).sum()) ** 0.5


@pytest.mark.parametrize(
    ("order", "sizes", "expected"),
    [(1, (12, 24), 1.9), (2, (6, 12), 2.9), (3, (4, 8), 3.9), (4, (4, 8), 4.9)],
    ids=["P1", "P2", "P3", "P4"],
)
@pytest.mark.parametrize("element_type", ["tri", "quad", "mixed"])
def test_poisson_2d(element_type, order, sizes, expected):
    """features | ElementAssembler: serial."""
    coarse, fine = (
        error(gen_rectangle(n=(n, n), order=order, element_type=element_type)) for n in sizes
    )
    assert math.log2(coarse / fine) >= expected
    assert fine < 5e-3


@pytest.mark.parametrize(
    ("element_type", "order", "sizes", "expected"),
    [
        ("tet", 1, (8, 16), 1.9),
        ("hex", 1, (5, 10), 1.9),
        ("wedge", 1, (6, 12), 1.9),
        ("tet", 2, (4, 8), 2.9),
        ("hex", 2, (3, 6), 2.9),
        ("wedge", 2, (3, 6), 2.9),
        ("tet", 3, (3, 6), 3.9),
        ("hex", 3, (2, 4), 3.9),
        ("wedge", 3, (2, 4), 3.9),
        ("hex", 4, (2, 4), 4.9),
    ],
)
def test_poisson_3d(element_type, order, sizes, expected):
    coarse, fine = (
        error(gen_cube(n=(n, n, n), order=order, element_type=element_type)) for n in sizes
    )
    assert math.log2(coarse / fine) >= expected
    assert fine < 2e-2
