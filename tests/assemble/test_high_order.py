"""Orders 3 and 4: element matrices by exact integrals of monomials, and polynomials in facets."""

from itertools import product
from math import factorial

import numpy as np
import pytest
import torch

from tensormesh.assemble import FacetAssembler, LaplaceElementAssembler, MassElementAssembler
from tensormesh.element import cell_type, reference_nodes
from tensormesh.mesh import Mesh
from tests.assemble.meshes import HIGH_ORDER, filled

# Dimensions of the simplices whose product a cell is.
FACTORS = {
    **{"line": (1,), "triangle": (2,), "tetra": (3,)},
    **{"quad": (1, 1), "hexahedron": (1, 1, 1), "wedge": (2, 1)},
}


def integrals(powers):
    """Dirichlet's formula for the monomials with exponents `powers` (..., dim) on the simplex."""
    factorials = np.vectorize(factorial, otypes=[float])
    total = powers.sum(axis=-1) + powers.shape[-1]
    return factorials(powers).prod(axis=-1) / factorials(total)


def simplex_matrices(dim, order):
    """Nodes in steps of 1 / order, mass and stiffness of the Lagrange basis on a simplex."""
    powers = np.array([p for p in product(range(order + 1), repeat=dim) if sum(p) <= order])
    coefficients = np.linalg.inv(((powers[:, None] / order) ** powers).prod(axis=2))
    sums = powers[:, None] + powers[None]
    stiffness = np.zeros(sums.shape[:2])
    for axis, step in enumerate(np.eye(dim, dtype=int)):
        factors = np.outer(powers[:, axis], powers[:, axis])
        stiffness += factors * integrals(np.maximum(sums - 2 * step, 0))
    matrices = [coefficients.T @ m @ coefficients for m in (integrals(sums), stiffness)]
    return powers, *matrices


def exact_matrices(kind):
    """Mass and stiffness of the reference cell, by those of the simplices that it is made of."""
    of = cell_type(kind)
    steps = np.rint(reference_nodes(kind).numpy() * of.order).astype(int)
    mass, stiffness, start = np.ones((len(steps),) * 2), np.zeros((len(steps),) * 2), 0
    for dim in FACTORS[of.shape]:
        nodes, M, K = simplex_matrices(dim, of.order)
        mine = steps[:, None, start : start + dim]
        index = (mine == nodes).all(axis=2).argmax(axis=1)
        M, K = M[np.ix_(index, index)], K[np.ix_(index, index)]
        mass, stiffness, start = mass * M, stiffness * M + mass * K, start + dim
    return mass, stiffness


@pytest.mark.parametrize("kind", HIGH_ORDER)
def test_element_matrices_are_exact(kind):
    nodes = reference_nodes(kind)
    mesh = Mesh.from_arrays(nodes, {kind: torch.arange(len(nodes)).unsqueeze(0)})
    forms = (MassElementAssembler, LaplaceElementAssembler)
    for form, exact in zip(forms, exact_matrices(kind), strict=True):
        ours = form.from_mesh(mesh)().to_dense().numpy()
        assert np.abs(ours - exact).max() <= 3e-12 * np.abs(exact).max()


@pytest.mark.parametrize("kind", [k for k in HIGH_ORDER if cell_type(k).dim > 1])
def test_a_field_of_the_order_on_the_boundary(kind):
    """Flux of x0^p x out of the unit box, by the divergence theorem."""

    class Flux(FacetAssembler):
        def forward(self, v, x, n, w):
            return w * (x @ n) * v

    mesh = filled(kind)
    order = cell_type(kind).order
    w = mesh.points[:, 0] ** order
    flux = Flux.from_mesh(mesh, quadrature_order=2 * order + 1)(point_data={"w": w}).sum()
    assert float(flux) == pytest.approx((mesh.dim + order) / (order + 1), rel=1e-12)
