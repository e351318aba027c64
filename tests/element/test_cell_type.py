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

# Orders 3 and 4: what GetParametricCoords of VTK 9.7's vtkLagrange... classes gives, in steps of
# 1 / order, a digit a coordinate.
VTK_STEPS = {
    "line4": """
        0 3 1 2
    """,
    "line5": """
        0 4 1 2 3
    """,
    "triangle10": """
        00 30 03 10 20 21 12 02 01 11
    """,
    "triangle15": """
        00 40 04 10 20 30 31 22 13 03 02 01 11 21 12
    """,
    "quad16": """
        00 30 33 03 10 20 31 32 13 23 01 02 11 21 12 22
    """,
    "quad25": """
        00 40 44 04 10 20 30 41 42 43 14 24 34 01 02 03 11 21 31 12 22 32 13 23 33
    """,
    "tetra20": """
        000 300 030 003 100 200 210 120 020 010 001 002 201 102 021 012 101 111 011 110
    """,
    "tetra35": """
        000 400 040 004 100 200 300 310 220 130 030 020 010 001 002 003 301 202 103 031 022 013
        101 201 102 121 112 211 011 012 021 110 120 210 111
    """,
    "hexahedron64": """
        000 300 330 030 003 303 333 033 100 200 310 320 130 230 010 020 103 203 313 323 133 233
        013 023 001 002 301 302 331 332 031 032 011 021 012 022 311 321 312 322 101 201 102 202
        131 231 132 232 110 210 120 220 113 213 123 223 111 211 121 221 112 212 122 222
    """,
    "hexahedron125": """
        000 400 440 040 004 404 444 044 100 200 300 410 420 430 140 240 340 010 020 030 104 204
        304 414 424 434 144 244 344 014 024 034 001 002 003 401 402 403 441 442 443 041 042 043
        011 021 031 012 022 032 013 023 033 411 421 431 412 422 432 413 423 433 101 201 301 102
        202 302 103 203 303 141 241 341 142 242 342 143 243 343 110 210 310 120 220 320 130 230
        330 114 214 314 124 224 324 134 234 334 111 211 311 121 221 321 131 231 331 112 212 312
        122 222 322 132 232 332 113 213 313 123 223 323 133 233 333
    """,
    "wedge40": """
        000 300 030 003 303 033 100 200 210 120 020 010 103 203 213 123 023 013 001 002 301 302
        031 032 110 113 101 201 102 202 211 121 212 122 021 011 022 012 111 112
    """,
    "wedge75": """
        000 400 040 004 404 044 100 200 300 310 220 130 030 020 010 104 204 304 314 224 134 034
        024 014 001 002 003 401 402 403 041 042 043 110 210 120 114 214 124 101 201 301 102 202
        302 103 203 303 311 221 131 312 222 132 313 223 133 031 021 011 032 022 012 033 023 013
        111 211 121 112 212 122 113 213 123
    """,
}
ALL = [*VTK_NODES, *VTK_STEPS]


def vtk_nodes(name):
    if name in VTK_NODES:
        return torch.tensor(VTK_NODES[name], dtype=torch.float64)
    steps = [[int(digit) for digit in place] for place in VTK_STEPS[name].split()]
    return torch.tensor(steps, dtype=torch.float64) / max(max(place) for place in steps)


@pytest.mark.parametrize("name", ALL)
def test_nodes_are_where_vtk_has_them(name):
    """features | CellType, cell_type, reference_nodes: serial."""
    expected = vtk_nodes(name)
    assert torch.allclose(reference_nodes(name), expected, rtol=0, atol=1e-15)
    assert cell_type(name).n_nodes == len(expected)


@pytest.mark.parametrize("name", ALL)
def test_basis_function_i_is_one_at_node_i_only(name):
    nodes = vtk_nodes(name)
    values, _ = tabulate(name, nodes)
    assert torch.allclose(values, torch.eye(len(nodes), dtype=torch.float64), atol=1e-12)


def test_a_vertex_is_a_cell_with_one_constant():
    values, gradients = tabulate("vertex", torch.zeros(3, 0))
    assert torch.equal(values, torch.ones(3, 1, dtype=torch.float64))
    assert gradients.shape == (3, 1, 0)
    assert cell_type("vertex").dim == 0


def test_cell_name_is_the_inverse_of_cell_type():
    """features | cell_name: serial."""
    for name in ALL:
        kind = cell_type(name)
        assert cell_name(kind.shape, kind.order) == name


def test_unknown_type_lists_the_supported_ones():
    with pytest.raises(KeyError, match=r"'tet'.*triangle6.*pyramid14"):
        cell_type("tet")


@pytest.mark.parametrize("name", ["quad8", "hexahedron20", "wedge15", "pyramid13"])
def test_serendipity_types_are_explained(name):
    with pytest.raises(KeyError, match="serendipity"):
        cell_type(name)


def test_pyramids_end_at_order_2():
    with pytest.raises(KeyError, match="shape 'pyramid' and order 3"):
        cell_name("pyramid", 3)
