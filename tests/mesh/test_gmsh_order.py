"""Node orders and bases of gmsh, asked of gmsh itself where it can be imported."""

import numpy as np
import pytest
import torch

from tensormesh.element import cell_type, quadrature, reference_nodes, tabulate
from tensormesh.element.cell_type import NAMES
from tensormesh.mesh.gmsh_order import TYPE_NUMBERS, file_to_gmsh, gmsh_to_file

# gmsh does not tell about wedges of order 3 and 4: for these there are files in the data.
SILENT = ("vertex", "wedge40", "wedge75")
KINDS = [k for k in NAMES if k not in SILENT]


@pytest.fixture(scope="module")
def gmsh():
    try:
        import gmsh
    except (ImportError, OSError):
        pytest.skip("gmsh cannot be imported")
    gmsh.initialize(readConfigFiles=False, interruptible=False)
    gmsh.option.setNumber("General.Terminal", 0)
    yield gmsh
    gmsh.finalize()


def to_gmsh(kind, x):
    """Reference coordinates of gmsh, of which most go from -1 to 1."""
    shape = cell_type(kind).shape
    if shape == "wedge":
        return np.column_stack([x[:, :2], 2 * x[:, 2] - 1])
    if shape == "pyramid":
        return np.column_stack([2 * x[:, :2] - 1 + x[:, 2:], x[:, 2]])
    return x if shape in ("triangle", "tetra") else 2 * x - 1


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_where_gmsh_has_them(gmsh, kind):
    _, dim, order, n_nodes, flat, _ = gmsh.model.mesh.getElementProperties(TYPE_NUMBERS[kind])
    of = cell_type(kind)
    assert (dim, order, n_nodes) == (of.dim, of.order, of.n_nodes)
    theirs = np.reshape(flat, (n_nodes, dim))[gmsh_to_file(kind)]
    ours = to_gmsh(kind, reference_nodes(kind).numpy())
    assert np.allclose(theirs, ours, rtol=0, atol=1e-14)
    permutation = np.array(gmsh_to_file(kind))[file_to_gmsh(kind)]
    assert permutation.tolist() == list(range(n_nodes))


# gmsh has another space on pyramids.
@pytest.mark.parametrize("kind", [k for k in KINDS if cell_type(k).shape != "pyramid"])
def test_basis_and_its_gradients_are_those_of_gmsh(gmsh, kind):
    points, _ = quadrature(kind, 4)
    dim = points.shape[1]
    at = np.pad(to_gmsh(kind, points.numpy()), ((0, 0), (0, 3 - dim))).ravel()
    basis = gmsh.model.mesh.getBasisFunctions
    _, flat, _ = basis(TYPE_NUMBERS[kind], at, "Lagrange")
    _, flat_gradients, _ = basis(TYPE_NUMBERS[kind], at, "GradLagrange")
    values, gradients = tabulate(kind, points)
    theirs = np.reshape(flat, values.shape)[:, gmsh_to_file(kind)]
    slopes = np.reshape(flat_gradients, (*values.shape, 3))[:, gmsh_to_file(kind), :dim]
    # The chain rule for the other reference coordinates.
    eye = np.eye(dim)
    scale = np.diag(to_gmsh(kind, eye) - to_gmsh(kind, 0 * eye))
    assert torch.allclose(values, torch.tensor(theirs), rtol=0, atol=1e-12)
    assert torch.allclose(gradients, torch.tensor(slopes * scale), rtol=0, atol=1e-11)
