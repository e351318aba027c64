"""Quadrature: exact integrals of monomials, positive weights, points inside."""

from itertools import product
from math import comb, factorial

import pytest
import torch

from tensormesh.element import quadrature

SIMPLICES = {"line": 1, "triangle": 2, "tetra": 3}
CUBES = {"line": 1, "quad": 2, "hexahedron": 3}
SHAPES = ["line", "triangle", "quad", "tetra", "hexahedron", "wedge", "pyramid"]


def simplex_integral(exponents):
    """Dirichlet's integral over the unit simplex."""
    numerator = 1
    for a in exponents:
        numerator *= factorial(a)
    return numerator / factorial(sum(exponents) + len(exponents))


def cube_integral(exponents):
    result = 1.0
    for a in exponents:
        result /= a + 1
    return result


def wedge_integral(exponents):
    return simplex_integral(exponents[:2]) / (exponents[2] + 1)


def pyramid_integral(exponents):
    """x and y from 0 to 1 - z: a beta function of z."""
    a, b, c = exponents
    return beta(c, a + b + 2) / ((a + 1) * (b + 1))


def beta(c, n):
    """Integral of z^c (1 - z)^n over [0, 1]."""
    return 1 / ((c + n + 1) * comb(c + n, c))


def monomials(dim, degree):
    return [e for e in product(range(degree + 1), repeat=dim) if sum(e) <= degree]


def check(name, exponents, exact, degree):
    points, weights = quadrature(name, degree)
    powers = torch.tensor(exponents, dtype=torch.float64)
    assert float((weights * (points**powers).prod(dim=1)).sum()) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("degree", range(9))
@pytest.mark.parametrize("name", SIMPLICES)
def test_simplices_integrate_the_total_degree(name, degree):
    """features | quadrature: serial."""
    for exponents in monomials(SIMPLICES[name], degree):
        check(name, exponents, simplex_integral(exponents), degree)


@pytest.mark.parametrize("degree", range(9))
@pytest.mark.parametrize("name", CUBES)
def test_cubes_integrate_the_degree_in_each_direction(name, degree):
    for exponents in product(range(degree + 1), repeat=CUBES[name]):
        check(name, exponents, cube_integral(exponents), degree)


@pytest.mark.parametrize("degree", range(9))
def test_wedges_integrate_the_degree_on_triangle_and_axis(degree):
    for *in_plane, along in product(range(degree + 1), repeat=3):
        if sum(in_plane) <= degree:
            check("wedge", (*in_plane, along), wedge_integral((*in_plane, along)), degree)


@pytest.mark.parametrize("degree", range(9))
def test_pyramids_integrate_the_total_degree(degree):
    for exponents in monomials(3, degree):
        check("pyramid", exponents, pyramid_integral(exponents), degree)


def test_pyramids_integrate_products_of_their_rational_functions():
    """(x y / (1 - z))^2 over the pyramid is the integral of (1 - z)^4 / 9."""
    points, weights = quadrature("pyramid", 2)
    x, y, z = points.unbind(dim=1)
    assert float((weights * (x * y / (1 - z)) ** 2).sum()) == pytest.approx(1 / 45, rel=1e-12)


def test_mean_height_of_a_pyramid():
    """Known fault 3; the apex above the middle of the base changes nothing."""
    points, weights = quadrature("pyramid", 1)
    assert float((weights * points[:, 2]).sum()) == pytest.approx(1 / 12, rel=1e-12)


@pytest.mark.parametrize("degree", [*range(17), 31])
@pytest.mark.parametrize("name", SHAPES)
def test_weights_are_positive_and_points_inside(name, degree):
    points, weights = quadrature(name, degree)
    assert (weights > 0).all()
    assert (points > -1e-12).all()
    assert (points < 1 + 1e-12).all()
    if name in SIMPLICES:
        assert (points.sum(dim=1) < 1 + 1e-12).all()


def test_a_type_uses_the_rule_of_its_shape():
    assert torch.equal(quadrature("tetra10", 4)[0], quadrature("tetra", 4)[0])


def test_a_vertex_has_one_point_of_weight_one():
    points, weights = quadrature("vertex", 3)
    assert points.shape == (1, 0)
    assert weights.tolist() == [1.0]


def test_results_are_not_shared_between_calls():
    quadrature("triangle", 2)[1].zero_()
    assert float(quadrature("triangle", 2)[1].sum()) == pytest.approx(0.5)


@pytest.mark.parametrize("degree", [-1, 1.5, None])
def test_wrong_degree_is_refused(degree):
    with pytest.raises(ValueError, match="degree"):
        quadrature("quad", degree)
