"""Files with cells of orders 3 and 4: in the node order of whoever wrote them, and back."""

from pathlib import Path

import meshio
import numpy as np
import pytest
import torch

from tensormesh.element import reference_nodes
from tensormesh.mesh import Mesh
from tensormesh.mesh.generators import gen_cube, gen_rectangle

DATA = Path(__file__).parents[1] / "data"

# Cells of orders 3 and 4 alone in a file written by gmsh 4.15; straight, so that each node is where
# the map of the reference cell puts it.
GMSH_HIGH_ORDER = (
    *("triangle10", "triangle15", "quad16", "quad25"),
    *("tetra20", "tetra35", "hexahedron64", "hexahedron125", "wedge40", "wedge75"),
)


@pytest.mark.parametrize("version", ["msh22", "msh41"])
@pytest.mark.parametrize("kind", GMSH_HIGH_ORDER)
def test_nodes_of_orders_3_and_4_of_gmsh_are_in_our_order(kind, version):
    mesh = Mesh.read(DATA / f"{kind}_{version}.msh")
    sides = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)[: mesh.dim]
    assert list(mesh.cells) == [kind]
    nodes = mesh.points[mesh.cells[kind][0]]
    assert torch.allclose(nodes, reference_nodes(kind) * sides, rtol=0, atol=1e-14)


def test_high_orders_in_the_order_of_gmsh_are_noticed():
    """meshio leaves these cells as they are in the file."""
    raw = meshio.read(DATA / "hexahedron64_msh41.msh")
    with pytest.raises(ValueError, match=r"1 of 1 cells of type 'hexahedron64'.*order of meshio"):
        Mesh.from_meshio(raw)


HIGH_ORDER = {
    "tri": (gen_rectangle, "tri"),
    "quad": (gen_rectangle, "quad"),
    "mixed": (gen_rectangle, "mixed"),
    "tet": (gen_cube, "tet"),
    "hex": (gen_cube, "hex"),
    "wedge": (gen_cube, "wedge"),
}


@pytest.mark.parametrize("suffix", ["vtu", "vtk", "msh", "gmsh22"])
@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("element_type", HIGH_ORDER)
def test_round_trip_of_orders_3_and_4(element_type, order, suffix, tmp_path):
    """features | files of VTK: serial."""
    make, element_type = HIGH_ORDER[element_type]
    mesh = make(1.0, order, element_type=element_type, right=2.0)
    path = tmp_path / f"a.{suffix if suffix != 'gmsh22' else 'msh'}"
    mesh.save(path, "gmsh22" if suffix == "gmsh22" else None)
    back = Mesh.read(path)
    assert torch.equal(back.points, mesh.points)
    assert set(back.cells) == set(mesh.cells)
    for kind, cells in mesh.cells.items():
        assert torch.equal(rows_sorted(back.cells[kind]), rows_sorted(cells))
    assert n_in_groups(back) == n_in_groups(mesh)


def rows_sorted(cells):
    return torch.tensor(sorted(cells.tolist()))


def n_in_groups(mesh):
    return {n: {k: len(i) for k, i in mesh.group(n).items()} for n in mesh.cell_sets}


@pytest.mark.parametrize(("suffix", "edge_10", "edge_11"), [("vtu", 3, 2), ("vtk", 2, 3)])
def test_old_vtu_files_have_two_edges_of_hexahedra_exchanged(suffix, edge_10, edge_11, tmp_path):
    """The reader of VTK 9 exchanges them in .vtu files of a version before 2.1, as meshio's are."""
    mesh = gen_cube(1.0, 3, element_type="hex")
    mesh.save(tmp_path / f"a.{suffix}")
    raw = meshio.read(tmp_path / f"a.{suffix}")
    block = next(b for b in raw.cells if b.type == "VTK_LAGRANGE_HEXAHEDRON")
    nodes = raw.points[block.data[0]]
    for edge, vertex in ((10, edge_10), (11, edge_11)):
        inside = nodes[8 + 2 * edge : 10 + 2 * edge]
        expected = nodes[vertex] + [[0, 0, 1 / 3], [0, 0, 2 / 3]]
        assert np.allclose(inside, expected, rtol=0, atol=1e-14)


def test_lagrange_cells_of_order_2_are_read_and_order_5_is_refused(tmp_path):
    points = np.pad(reference_nodes("tetra10").numpy(), ((0, 46), (0, 0)))
    raw = meshio.Mesh(points, [("VTK_LAGRANGE_TETRAHEDRON", np.arange(10)[None])])
    raw.write(tmp_path / "a.vtu")
    assert Mesh.read(tmp_path / "a.vtu").cells["tetra10"].tolist() == [list(range(10))]
    raw.cells = [meshio.CellBlock("VTK_LAGRANGE_TETRAHEDRON", np.arange(56)[None])]
    raw.write(tmp_path / "b.vtu")
    with pytest.raises(ValueError, match="VTK_LAGRANGE_TETRAHEDRON with 56 nodes"):
        Mesh.read(tmp_path / "b.vtu")


def test_high_orders_are_refused_in_formats_whose_order_is_not_known(tmp_path, monkeypatch):
    path = tmp_path / "a.xdmf"
    with pytest.raises(ValueError, match=r"'hexahedron64' in files of format 'xdmf'"):
        gen_cube(1.0, 3, element_type="hex").save(path)
    path.touch()
    raw = meshio.Mesh(reference_nodes("hexahedron64").numpy(), [("hexahedron64", [range(64)])])
    monkeypatch.setattr(meshio, "read", lambda *_: raw)
    with pytest.raises(ValueError, match=r"'hexahedron64' in files of format 'xdmf'"):
        Mesh.read(path)
