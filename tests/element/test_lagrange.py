"""The Lagrange basis: it reproduces polynomials and their gradients."""

import pytest
import torch

from tensormesh.element import cell_type, quadrature, reference_nodes, tabulate
from tensormesh.element.cell_type import NAMES

CELLS = [name for name in NAMES if name != "vertex"]


@pytest.mark.parametrize("name", CELLS)
def test_partition_of_unity(name):
    points, _ = quadrature(name, 5)
    values, gradients = tabulate(name, points)
    assert torch.allclose(values.sum(dim=1), torch.ones(len(points), dtype=torch.float64))
    assert gradients.sum(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize("name", CELLS)
def test_polynomials_of_the_order_are_reproduced_with_their_gradients(name):
    """features | tabulate: serial."""
    kind = cell_type(name)
    points, _ = quadrature(name, 4)
    a = torch.linspace(0.3, 1.1, kind.dim, dtype=torch.float64)

    def f(x):
        return (x @ a + 0.2) ** kind.order

    values, gradients = tabulate(name, points)
    at_nodes = f(reference_nodes(name))
    exact = kind.order * ((points @ a + 0.2) ** (kind.order - 1)).unsqueeze(1) * a
    assert torch.allclose(values @ at_nodes, f(points), atol=1e-12)
    assert torch.allclose(torch.einsum("qbd,b->qd", gradients, at_nodes), exact, atol=1e-12)


def test_results_are_not_shared_between_calls():
    points = torch.tensor([[0.25, 0.25]], dtype=torch.float64)
    tabulate("triangle", points)[0].zero_()
    assert tabulate("triangle", points)[0].tolist() == [[0.5, 0.25, 0.25]]


def test_points_of_the_wrong_dimension_are_refused():
    with pytest.raises(ValueError, match=r"\(Q, 2\)"):
        tabulate("triangle", torch.zeros(4, 3))
