"""Cell types: names, sizes, and the node order of VTK."""

import pytest
import torch

from tensormesh.element import cell_name, cell_type, reference_nodes, tabulate

# Node coordinates as VTK documents them for each cell class, written out by hand. pyramid14 is
# VTK's quadratic pyramid with a 14th node in the middle of the base.
h = 0.5
TRIANGLE = [(0, 0), (1, 0), (0, 1)]
QUAD = [(0, 0), (1, 0), (1, 1), (0, 1)]
TETRA = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
HEXAHEDRON = [
    *[(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)],
    *[(0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)],
]
WEDGE = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)]
PYRAMID = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1)]
VTK_NODES = {
    "line": [(0,), (1,)],
    "line3": [(0,), (1,), (h,)],
    "triangle": TRIANGLE,
    "triangle6": [*TRIANGLE, (h, 0), (h, h), (0, h)],
    "quad": QUAD,
    "quad9": [*QUAD, (h, 0), (1, h), (h, 1), (0, h), (h, h)],
    "tetra": TETRA,
    "tetra10": [*TETRA, (h, 0, 0), (h, h, 0), (0, h, 0), (0, 0, h), (h, 0, h), (0, h, h)],
    "hexahedron": HEXAHEDRON,
    "hexahedron27": [
        *HEXAHEDRON,
        *[(h, 0, 0), (1, h, 0), (h, 1, 0), (0, h, 0)],
        *[(h, 0, 1), (1, h, 1), (h, 1, 1), (0, h, 1)],
        *[(0, 0, h), (1, 0, h), (1, 1, h), (0, 1, h)],
        *[(0, h, h), (1, h, h), (h, 0, h), (h, 1, h), (h, h, 0), (h, h, 1)],
        (h, h, h),
    ],
    "wedge": WEDGE,
    "wedge18": [
        *WEDGE,
        *[(h, 0, 0), (h, h, 0), (0, h, 0), (h, 0, 1), (h, h, 1), (0, h, 1)],
        *[(0, 0, h), (1, 0, h), (0, 1, h)],
        *[(h, 0, h), (h, h, h), (0, h, h)],
    ],
    "pyramid": PYRAMID,
    "pyramid14": [
        *PYRAMID,
        *[(h, 0, 0), (1, h, 0), (h, 1, 0), (0, h, 0)],
        *[(0, 0, h), (h, 0, h), (h, h, h), (0, h, h)],
        (h, h, 0),
    ],
}


@pytest.mark.parametrize("name", VTK_NODES)
def test_nodes_are_where_vtk_has_them(name):
    expected = torch.tensor(VTK_NODES[name], dtype=torch.float64)
    assert torch.equal(reference_nodes(name), expected)
    assert cell_type(name).n_nodes == len(expected)


@pytest.mark.parametrize("name", VTK_NODES)
def test_basis_function_i_is_one_at_node_i_only(name):
    nodes = torch.tensor(VTK_NODES[name], dtype=torch.float64)
    values, _ = tabulate(name, nodes)
    assert torch.allclose(values, torch.eye(len(nodes), dtype=torch.float64), atol=1e-12)


def test_a_vertex_is_a_cell_with_one_constant():
    values, gradients = tabulate("vertex", torch.zeros(3, 0))
    assert torch.equal(values, torch.ones(3, 1, dtype=torch.float64))
    assert gradients.shape == (3, 1, 0)
    assert cell_type("vertex").dim == 0


def test_cell_name_is_the_inverse_of_cell_type():
    for name in VTK_NODES:
        kind = cell_type(name)
        assert cell_name(kind.shape, kind.order) == name


def test_unknown_type_lists_the_supported_ones():
    with pytest.raises(KeyError, match=r"'tet'.*triangle6.*pyramid14"):
        cell_type("tet")


@pytest.mark.parametrize("name", ["quad8", "hexahedron20", "wedge15", "pyramid13"])
def test_serendipity_types_are_explained(name):
    with pytest.raises(KeyError, match="serendipity"):
        cell_type(name)
