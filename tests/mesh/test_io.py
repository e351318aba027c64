"""Files: what the ones in tests/data contain, what survives writing, what is refused."""

from collections import Counter
from itertools import chain
from pathlib import Path

import meshio
import numpy as np
import pytest
import torch

from tensormesh.element import quadrature, tabulate
from tensormesh.mesh import Mesh

DATA = Path(__file__).parents[1] / "data"

# Facets by vertices, from the documentation of VTK and not from the package.
FACETS = {
    "triangle": [(0, 1), (1, 2), (2, 0)],
    "quad": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "tetra": [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)],
    "hexahedron": [
        *[(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4)],
        *[(1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)],
    ],
    "wedge": [(0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)],
    "pyramid": [(0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)],
}
FIRST_ORDER = {
    **{kind: kind for kind in FACETS},
    "triangle6": "triangle",
    "quad9": "quad",
    "tetra10": "tetra",
}


def count_boundary_facets(blocks):
    """Facets that occur once, counted in plain Python from meshio's cells of highest dimension."""
    facets = chain.from_iterable(
        map(frozenset, cells[:, list(facet)].tolist())
        for kind, cells in blocks
        for facet in FACETS[FIRST_ORDER[kind]]
    )
    return sum(count == 1 for count in Counter(facets).values())


def area(points, corners):
    """Sum over polygons of the shoelace formula, (E, k) corners in the plane."""
    x, y = points[corners, 0], points[corners, 1]
    return float(np.sum(x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)) / 2)


def tetrahedra_volume(points, corners):
    """Sum of absolute volumes."""
    a, b, c, d = (points[corners[:, i]] for i in range(4))
    return float(np.abs(np.einsum("ij,ij->i", np.cross(b - a, c - a), d - a)).sum() / 6)


def hexahedra_volume(points, corners):
    """Sum of the long-diagonal formula of Grandy (1997), exact for trilinear cells."""
    x = [points[corners[:, i]] for i in range(8)]

    def det(a, b, c):
        return float(np.einsum("ij,ij->i", np.cross(a, b), c).sum())

    d = x[6] - x[0]
    thirds = [(1, 2, 5), (4, 5, 7), (3, 7, 2)]
    return sum(det(d, x[a] - x[0], x[b] - x[c]) for a, b, c in thirds) / 6


def measure(mesh):
    """Sum of the integrals of 1 over the top cells, by the element layer."""
    total = 0.0
    for kind, cells in mesh.top_cells().items():
        points, weights = quadrature(kind, 6)
        _, gradients = tabulate(kind, points)
        J = torch.einsum("ebd,qbk->eqdk", mesh.points[cells], gradients)
        total += float((torch.linalg.det(J).abs() * weights).sum())
    return total


# Cells by type, coordinates kept, number of cells in each group. The measures are of the domain
# where it is known, else they are computed from the file in the test.
FILES = {
    "bracket.msh": (
        {"triangle": 2146, "tetra": 91267},
        3,
        {"bolts": {"triangle": 1324}, "pins": {"triangle": 822}, "solid": {"tetra": 91267}},
    ),
    "bracket_p2.msh": (
        {"triangle6": 1256, "tetra10": 9651},
        3,
        {"bolts": {"triangle6": 816}, "pins": {"triangle6": 440}, "solid": {"tetra10": 9651}},
    ),
    "beams.msh": (
        {"triangle": 8, "tetra": 851},
        3,
        {"fixed": {"triangle": 8}, "all": {"tetra": 851}},
    ),
    "mixedtriquad.msh": (
        {"line": 22, "triangle": 16, "quad": 36},
        2,
        {"boundary": {"line": 22}, "domain": {"triangle": 16, "quad": 36}},
    ),
    "quadratic_quad.msh": ({"vertex": 1, "line3": 46, "quad9": 237}, 2, {}),
    "tagged_gmsh4.msh": (
        {"line": 8, "triangle": 80},
        2,
        {"tagged": {"line": 8}, "test": {"line": 8}, "all": {"triangle": 80}},
    ),
    "block.mesh": ({"hexahedron": 320}, 3, {}),
    "square_triquad.mesh": ({"triangle": 458, "quad": 200}, 2, {}),
    "beam_h5t12.mesh": ({"hexahedron": 5, "tetra": 12}, 3, {}),
}


def sizes(by_type):
    return {kind: len(cells) for kind, cells in by_type.items()}


def group_sizes(mesh):
    return {name: sizes(by_type) for name, by_type in mesh.cell_sets.items()}


@pytest.mark.parametrize("name", FILES)
def test_cells_groups_and_dimension_of_every_file(name):
    """features | files of gmsh: serial."""
    cells, dim, groups = FILES[name]
    mesh = Mesh.read(DATA / name)
    assert sizes(mesh.cells) == cells
    assert mesh.dim == dim
    assert {n: dict(sorted(of.items())) for n, of in group_sizes(mesh).items()} == {
        n: dict(sorted(of.items())) for n, of in groups.items()
    }


@pytest.mark.parametrize("name", FILES)
def test_boundary_facets_of_every_file(name):
    mesh = Mesh.read(DATA / name)
    raw = meshio.read(DATA / name)
    top = max(block.dim for block in raw.cells)
    blocks = [(block.type, block.data) for block in raw.cells if block.dim == top]
    assert len(mesh.boundary_facets()) == count_boundary_facets(blocks)


def top_corners(raw, kind):
    return np.concatenate([block.data for block in raw.cells if block.type == kind])


@pytest.mark.parametrize("name", ["bracket.msh", "beams.msh", "block.mesh", "beam_h5t12.mesh"])
def test_volume_of_every_solid_file(name):
    raw = meshio.read(DATA / name)
    formulas = {"tetra": tetrahedra_volume, "hexahedron": hexahedra_volume}
    expected = sum(
        formula(raw.points, top_corners(raw, kind))
        for kind, formula in formulas.items()
        if kind in raw.cells_dict
    )
    assert measure(Mesh.read(DATA / name)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["mixedtriquad.msh", "tagged_gmsh4.msh", "square_triquad.mesh"])
def test_area_of_every_plane_file(name):
    raw = meshio.read(DATA / name)
    expected = sum(
        area(raw.points, top_corners(raw, kind))
        for kind in ("triangle", "quad")
        if kind in raw.cells_dict
    )
    assert measure(Mesh.read(DATA / name)) == pytest.approx(expected, rel=1e-12)


def test_known_domains():
    """features | files that meshio reads: serial."""
    assert measure(Mesh.read(DATA / "square_triquad.mesh")) == pytest.approx(1.0)
    assert measure(Mesh.read(DATA / "block.mesh")) == pytest.approx(40.0)
    assert measure(Mesh.read(DATA / "beams.msh")) == pytest.approx(0.12)


def test_volume_of_the_second_order_bracket():
    """Both meshes approximate one part; the curved cells are closer to it than their chords."""
    straight = measure(Mesh.read(DATA / "bracket.msh"))
    assert measure(Mesh.read(DATA / "bracket_p2.msh")) == pytest.approx(straight, rel=1e-3)


def test_area_of_second_order_quads_is_that_inside_their_edges():
    """Green's formula on the boundary edges, each a parabola: Simpson's rule is exact."""
    mesh = Mesh.read(DATA / "quadratic_quad.msh")
    cell, local = mesh.boundary_facets()["quad9"]
    edge_nodes = torch.tensor([[0, 1, 4], [1, 2, 5], [2, 3, 6], [3, 0, 7]])[local]
    a, b, m = mesh.points[mesh.cells["quad9"][cell.unsqueeze(1), edge_nodes]].unbind(dim=1)

    def cross(p, dp):
        return (p[:, 0] * dp[:, 1] - p[:, 1] * dp[:, 0]).sum()

    # p'(t) at t = 0, 1/2, 1 of the parabola through a, m, b.
    ends = cross(a, 4 * m - 3 * a - b) + 4 * cross(m, b - a) + cross(b, 3 * b + a - 4 * m)
    assert measure(mesh) == pytest.approx(abs(float(ends)) / 12, rel=1e-12)


def test_every_group_of_facets_lies_on_the_boundary():
    """features | groups of cells and facets: serial."""
    mesh = Mesh.read(DATA / "bracket_p2.msh")
    on_boundary = mesh.topological_boundary_mask()
    for name in ("bolts", "pins"):
        assert on_boundary[mesh.cells["triangle6"][mesh.group(name)["triangle6"]]].all()


@pytest.mark.parametrize("version", ["msh22", "msh41"])
def test_a_surface_in_two_physical_groups(version):
    """MSH 2.2 lists the cells of `left` twice; both groups and the unnamed one are kept."""
    mesh = Mesh.read(DATA / f"plate_overlap_{version}.msh")
    assert sizes(mesh.cells) == {"line": 5, "triangle": 132}
    assert group_sizes(mesh) == {
        "left": {"line": 5, "triangle": 66},
        "plate": {"triangle": 132},
        "7": {"line": 5},
    }
    assert measure(mesh) == pytest.approx(2.0)
    left = mesh.points[mesh.cells["triangle"][mesh.group("left", dim=2)["triangle"]]]
    assert float(left[..., 0].max()) <= 1.0
    assert (mesh.points[mesh.cells["line"]][..., 0] == 0).all()


def test_save_all_keeps_cells_without_a_group():
    """Cell data of gmsh are shorter than the cells there, at which meshio gives up."""
    mesh = Mesh.read(DATA / "plate_save_all.msh")
    assert sizes(mesh.cells) == {"vertex": 6, "line": 35, "triangle": 132}
    assert group_sizes(mesh)["left"] == {"triangle": 66}
    tags = mesh.cell_data["gmsh:physical"]["triangle"]
    assert torch.equal(tags.nonzero().flatten(), mesh.group("left")["triangle"])
    assert measure(mesh) == pytest.approx(2.0)


@pytest.mark.parametrize("version", ["msh22", "msh41"])
@pytest.mark.parametrize(
    ("kind", "volume"), [("wedge18", 3), ("pyramid14", 2), ("hexahedron27", 6)]
)
def test_second_order_cells_of_gmsh_are_in_our_node_order(kind, volume, version):
    mesh = Mesh.read(DATA / f"{kind}_{version}.msh")
    assert mesh.check_node_ordering() == {kind: 0}
    assert measure(mesh) == pytest.approx(volume)


def cell_set_points(mesh, name):
    """Corners of the cells of a group, as a set that does not depend on their order."""
    return {
        (kind, frozenset(map(tuple, nodes)))
        for kind, index in mesh.group(name).items()
        for nodes in mesh.points[mesh.cells[kind][index]].tolist()
    }


def example(name):
    mesh = Mesh.read(DATA / name)
    mesh.register_point_data("is_low", mesh.points[:, 0] < 0)
    mesh.register_point_data("velocity", 1.5 * mesh.points)
    centres = torch.cat([mesh.points[c].mean(dim=1)[:, 0] for c in mesh.top_cells().values()])
    return mesh.register_element_data("centre", centres)


@pytest.mark.parametrize("suffix", ["vtu", "vtk", "msh", "gmsh22"])
@pytest.mark.parametrize(
    "name", ["bracket_p2.msh", "mixedtriquad.msh", "quadratic_quad.msh", "wedge18_msh41.msh"]
)
def test_round_trip(name, suffix, tmp_path):
    mesh = example(name)
    if suffix == "gmsh22":
        del mesh.cell_data["centre"]  # see test_element_data_of_msh22_are_refused
    path = tmp_path / f"out.{suffix if suffix != 'gmsh22' else 'msh'}"
    assert mesh.save(path, "gmsh22" if suffix == "gmsh22" else None) is mesh
    back = Mesh.read(path)
    assert torch.equal(back.points, mesh.points)
    assert sizes(back.cells) == sizes(mesh.cells)
    assert measure(back) == pytest.approx(measure(mesh), rel=1e-13)
    assert back.check_node_ordering() == mesh.check_node_ordering()
    assert back.cell_sets.keys() == mesh.cell_sets.keys()
    for group in mesh.cell_sets:
        assert cell_set_points(back, group) == cell_set_points(mesh, group)
    assert torch.equal(back.point_data["is_low"], mesh.point_data["is_low"])
    width = mesh.dim
    assert torch.equal(back.point_data["velocity"][:, :width], mesh.point_data["velocity"])
    for kind, cells in back.top_cells().items() if "centre" in mesh.cell_data else ():
        centres = back.points[cells].mean(dim=1)[:, 0]
        assert torch.allclose(back.cell_data["centre"][kind], centres)


def test_groups_that_overlap_survive_gmsh_files(tmp_path):
    mesh = Mesh.read(DATA / "plate_overlap_msh41.msh")
    mesh.save(tmp_path / "a.msh")
    assert group_sizes(Mesh.read(tmp_path / "a.msh")) == group_sizes(mesh)
    with pytest.raises(ValueError, match="'left' has cells of several dimensions"):
        mesh.save(tmp_path / "b.msh", "gmsh22")
    del mesh.cell_sets["left"]["line"]
    mesh.save(tmp_path / "b.msh", "gmsh22")
    assert group_sizes(Mesh.read(tmp_path / "b.msh")) == group_sizes(mesh)
    assert len(meshio.read(tmp_path / "b.msh").cells_dict["triangle"]) == 132 + 66


def test_meshio_reads_what_we_write_as_msh41(tmp_path):
    mesh = Mesh.read(DATA / "bracket_p2.msh")
    mesh.save(tmp_path / "a.msh")
    raw = meshio.read(tmp_path / "a.msh")
    assert np.array_equal(raw.points, mesh.points.numpy())
    tetrahedra = np.sort(raw.cells_dict["tetra10"], axis=0)
    assert np.array_equal(tetrahedra, np.sort(mesh.cells["tetra10"].numpy(), axis=0))
    bolts = np.concatenate([np.asarray(index) for index in raw.cell_sets["bolts"]])
    assert len(bolts) == 816


def test_vtu_has_three_coordinates_integers_for_bools_and_flags_for_groups(tmp_path):
    example("mixedtriquad.msh").save(tmp_path / "a.vtu")
    raw = meshio.read(tmp_path / "a.vtu")
    assert raw.points.shape[1] == 3
    assert raw.point_data["is_low"].dtype.kind == "i"
    assert [int(np.sum(f)) for f in raw.cell_data["group:domain"]] == [0, 16, 36]


def test_cell_data_of_some_types_are_filled_for_the_others():
    mesh = Mesh.read(DATA / "mixedtriquad.msh")
    mesh.register_element_data("k", torch.ones(52))
    mesh.register_element_data("i", torch.ones(52, dtype=torch.int64))
    raw = mesh.to_meshio()
    assert [block.type for block in raw.cells] == ["line", "triangle", "quad"]
    assert np.isnan(raw.cell_data["k"][0]).all()
    assert raw.cell_data["i"][0].tolist() == [0] * 22
    assert raw.cell_data["k"][2].tolist() == [1.0] * 36


def test_from_file_and_to_file_are_the_same_methods(tmp_path):
    mesh = Mesh.from_file(str(DATA / "block.mesh")).to_file(str(tmp_path / "a.vtk"))
    assert Mesh.from_file(tmp_path / "a.vtk", "vtk").n_elements == mesh.n_elements == 320


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"nowhere\.msh"):
        Mesh.read("nowhere.msh")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.vtu", b"no xml"),
        ("a.msh", b"no mesh"),
        ("a.msh", b"$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n1 4 1 4\n2 1 0 4\n1\n"),
        (
            "a.msh",
            b"$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n1 4 1 4\n2 1 0 4\n1\n$EndNodes\n",
        ),
        ("a.mesh", b"\xff\xfe"),
        ("a.vtk", b""),
        ("a.xyz", b"what is this"),
    ],
)
def test_an_unreadable_file_is_named_and_nothing_is_printed(name, content, tmp_path, capfd):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"Cannot read mesh file '.*{name}'"):
        Mesh.read(tmp_path / name)
    assert capfd.readouterr() == ("", "")


def test_a_truncated_binary_file_is_refused(tmp_path):
    whole = (DATA / "bracket_p2.msh").read_bytes()
    (tmp_path / "cut.msh").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        Mesh.read(tmp_path / "cut.msh")


def test_a_partitioned_file_is_refused(tmp_path):
    text = (
        "$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$PartitionedEntities\n0\n$EndPartitionedEntities\n"
    )
    (tmp_path / "a.msh").write_text(text)
    with pytest.raises(ValueError, match="unpartitioned"):
        Mesh.read(tmp_path / "a.msh")


def test_element_data_of_msh22_are_refused(tmp_path):
    """They are written for gmsh, but meshio assigns them to the wrong cells."""
    example("mixedtriquad.msh").save(tmp_path / "a.msh", "gmsh22")
    with pytest.raises(ValueError, match=r"ElementData.*MSH 4\.1"):
        Mesh.read(tmp_path / "a.msh")


def test_unknown_formats_are_refused_when_writing(tmp_path):
    mesh = Mesh.read(DATA / "block.mesh")
    with pytest.raises(ValueError, match=r"No mesh format.*a\.nonsense"):
        mesh.save(tmp_path / "a.nonsense")
    with pytest.raises(ValueError, match=r"Cannot write mesh file .*Unknown format"):
        mesh.save(tmp_path / "a.vtu", "nonsense")


def test_a_type_that_vtk_lacks_is_refused_and_not_written_wrong(tmp_path):
    mesh = Mesh.read(DATA / "pyramid14_msh41.msh")
    with pytest.raises(ValueError, match=r"Cannot write mesh file .*pyramid14"):
        mesh.save(tmp_path / "a.vtu")


def test_complex_data_are_refused_by_name(tmp_path):
    mesh = Mesh.read(DATA / "block.mesh")
    mesh.register_point_data("phasor", torch.zeros(525, dtype=torch.complex128))
    for suffix in ("msh", "vtu"):
        with pytest.raises(ValueError, match="phasor"):
            mesh.save(tmp_path / f"a.{suffix}")


def test_numbers_of_another_byte_order_and_unsigned_are_read():
    source = meshio.Mesh(
        np.array([[0, 0], [1, 0], [0, 1]], dtype=">f4"),
        [("triangle", np.array([[0, 1, 2]], dtype=np.uint32))],
        point_data={"u": np.array([1, 2, 3], dtype=">i4"), "v": np.array([1, 2, 3], np.uint64)},
    )
    mesh = Mesh(source)
    assert mesh.dtype == torch.float32
    assert mesh.point_data["u"].tolist() == mesh.point_data["v"].tolist() == [1, 2, 3]
