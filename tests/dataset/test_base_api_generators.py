"""The rows of the generators: measures in closed form, masks by coordinates."""

import importlib
import math
import subprocess
import sys

import pytest
import torch

import tensormesh as tm
from tensormesh import Mesh, dataset
from tensormesh.dataset import gen_hollow_cube, gen_hollow_rectangle, gen_L

RECTANGLE = ("left", "right", "bottom", "top")
BOX = (*RECTANGLE, "front", "back")


def measure(mesh):
    return float(tm.const_node_assembler(1.0).from_mesh(mesh)().sum())


def perimeter(mesh, group=None):
    class Length(tm.FacetAssembler):
        def forward(self, v):
            return v

    return float(Length.from_mesh(mesh, group)().sum())


def has_gmsh():
    try:
        importlib.import_module("gmsh")
    except (ImportError, OSError):
        return False
    return True


needs_gmsh = pytest.mark.skipif(not has_gmsh(), reason="gmsh cannot be imported")


def test_row_exports_of_dataset():
    """base-api 1 | `tensormesh.dataset` (`.mesh`): the generators and `MeshGen`."""
    assert tm.MeshGen is dataset.MeshGen
    for name in dataset.__all__:
        assert getattr(dataset.mesh, name) is getattr(dataset, name)
        assert name == "MeshGen" or callable(getattr(Mesh, name))


def test_row_generators_are_static_methods_of_mesh():
    """base-api 2 | generators: static methods on `Mesh`, positional order as listed."""
    for mesh in (
        Mesh.gen_rectangle(0.5, 2, "quad", -1, 1),
        dataset.gen_rectangle(0.5, 2, "quad", -1, 1),
    ):
        assert mesh.default_element_type == "quad9"
        assert (mesh.points.min(dim=0).values.tolist(), measure(mesh)) == (
            [-1, 0],
            pytest.approx(2),
        )
    assert Mesh.gen_cube(0.5, 1, 0, 2).n_elements == 6 * 4 * 2 * 2
    assert measure(Mesh.gen_L(0.5, 1, "tri", 0, 2)) == pytest.approx(2 - 1.5 * 0.5)
    assert measure(Mesh.gen_hollow_rectangle(0.5, 1, "tri", 0, 2)) == pytest.approx(1.75)
    assert measure(Mesh.gen_hollow_cube(0.5, 1, 0, 2)) == pytest.approx(2 - 0.125)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("element_type", ["tri", "quad"])
def test_row_gen_hollow_rectangle(order, element_type):
    """base-api 2 | `gen_hollow_rectangle`: cells, `is_inner_*`, `is_outer_*` masks.

    features | gen_hollow_rectangle: serial.
    """
    outer, inner = (-1.0, 2.0, 0.0, 1.0), (0.3, 0.7, 0.35, 0.9)
    mesh = gen_hollow_rectangle(0.2, order, element_type, *outer, *inner)
    assert measure(mesh) == pytest.approx(3.0 - 0.4 * 0.55)
    assert mesh.used_points.all()
    x, data = mesh.points, mesh.point_data
    for name, bounds in [("outer", outer), ("inner", inner)]:
        low, high = torch.tensor(bounds, dtype=x.dtype).reshape(2, 2).T
        within = ((x >= low) & (x <= high)).all(dim=1)
        for number, side in enumerate(RECTANGLE):
            on_side = within & (x[:, number // 2] == bounds[number])
            assert torch.equal(data[f"is_{name}_{side}_boundary"], on_side)
        width, height = bounds[1] - bounds[0], bounds[3] - bounds[2]
        assert perimeter(mesh, name) == pytest.approx(2 * (width + height))
        assert perimeter(mesh, f"{name}_left") == pytest.approx(height)
    both = data["is_inner_boundary"] | data["is_outer_boundary"]
    assert torch.equal(both, data["is_boundary"])
    assert torch.equal(mesh.topological_boundary_mask(), data["is_boundary"])
    assert gen_hollow_rectangle().default_element_type == "quad"


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("element_type", ["tet", "hex", "wedge"])
def test_row_gen_hollow_cube(order, element_type):
    """base-api 2 | `gen_hollow_cube`: cells, masks of inner and outer sides.

    features | gen_hollow_cube: serial.
    """
    mesh = gen_hollow_cube(0.3, order, element_type=element_type)
    assert measure(mesh) == pytest.approx(1 - 0.5**3)
    assert perimeter(mesh, "outer") == pytest.approx(6.0)
    assert perimeter(mesh, "inner") == pytest.approx(6 * 0.25)
    x, data = mesh.points, mesh.point_data
    in_hole = ((x >= 0.25) & (x <= 0.75)).all(dim=1)
    for number, side in enumerate(BOX):
        at, bound = x[:, number // 2], number % 2
        assert torch.equal(data[f"is_outer_{side}_boundary"], at == bound)
        on_inner = in_hole & (at == 0.25 + 0.5 * bound)
        assert torch.equal(data[f"is_inner_{side}_boundary"], on_inner)
        assert perimeter(mesh, f"inner_{side}") == pytest.approx(0.25)
    assert torch.equal(mesh.topological_boundary_mask(), data["is_boundary"])
    assert gen_hollow_cube(0.5).default_element_type == "tetra"


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("element_type", ["tri", "quad"])
def test_row_gen_L(order, element_type):
    """base-api 2 | `gen_L`: four sides, `is_L_top_boundary`, `is_L_right_boundary`.

    features | gen_L: serial.
    """
    mesh = gen_L(0.15, order, element_type, 0.0, 3.0, 0.0, 2.0, top_inner=0.7, right_inner=1.2)
    assert measure(mesh) == pytest.approx(6.0 - 1.8 * 1.3)
    assert perimeter(mesh) == pytest.approx(10.0)
    lengths = dict(left=2.0, right=0.7, bottom=3.0, top=1.2, L_top=1.8, L_right=1.3)
    for side, length in lengths.items():
        assert perimeter(mesh, side) == pytest.approx(length)
    x, y = mesh.points.unbind(1)
    data = mesh.point_data
    assert torch.equal(data["is_L_top_boundary"], (y == 0.7) & (x >= 1.2))
    assert torch.equal(data["is_L_right_boundary"], (x == 1.2) & (y >= 0.7))
    assert torch.equal(data["is_right_boundary"], x == 3.0)
    assert gen_L().default_element_type == "quad"


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (gen_L, dict(element_type="hex")),
        (gen_L, dict(right_inner=1.5)),
        (gen_L, dict(order=5)),
        (gen_hollow_rectangle, dict(inner_left=0.9)),
        (gen_hollow_rectangle, dict(chara_length=0.0)),
        (gen_hollow_cube, dict(inner_back=1.0)),
        (dataset.gen_circle, dict(r=-1.0)),
        (dataset.gen_circle, dict(element_type="hex")),
        (dataset.gen_hollow_circle, dict(r_inner=3.0)),
        (dataset.gen_hollow_sphere, dict(r_inner=3.0)),
        (dataset.gen_sphere, dict(chara_length=float("nan"))),
    ],
)
def test_row_generators_refuse_wrong_sizes(make, arguments):
    """base-api 2 | generators: wrong sizes, bounds, orders and types are a `ValueError`."""
    with pytest.raises(ValueError, match=r"must|increase"):
        make(**arguments)


def test_row_curved_generators_name_the_extra(monkeypatch):
    """base-api 2 | generators: curved ones need the `gmsh` extra and say so."""
    monkeypatch.setitem(sys.modules, "gmsh", None)
    with pytest.raises(ImportError, match=r"tensormesh-sharded\[gmsh\]"):
        dataset.gen_circle()


@needs_gmsh
@pytest.mark.parametrize("element_type", ["tri", "quad"])
@pytest.mark.parametrize(("order", "error"), [(1, 2e-2), (2, 2e-5), (3, 2e-6), (4, 2e-9)])
def test_row_gen_circle(order, error, element_type):
    """base-api 2 | `gen_circle(element_type='tri', cx=0, cy=0, r=1)`, quads too.

    features | gen_circle: serial.
    """
    mesh = dataset.gen_circle(0.2, order, element_type, cx=1.0, cy=-2.0, r=1.0)
    assert list(mesh.top_cells()) == [
        tm.element.cell_name({"tri": "triangle"}.get(element_type, "quad"), order)
    ]
    assert measure(mesh) == pytest.approx(math.pi, rel=error)
    assert perimeter(mesh) == pytest.approx(2 * math.pi, rel=error)
    radius = (mesh.points - torch.tensor([1.0, -2.0])).norm(dim=1)
    assert torch.allclose(radius[mesh.boundary_mask], torch.ones(1).double(), atol=1e-9)
    assert radius[~mesh.boundary_mask].max() < 1 - 1e-3
    assert mesh.dtype == torch.float64


@needs_gmsh
@pytest.mark.parametrize(("order", "error"), [(1, 2e-2), (2, 1e-4)])
def test_row_gen_hollow_circle(order, error):
    """base-api 2 | `gen_hollow_circle`: quads, `is_inner_boundary`, `is_outer_boundary`.

    features | gen_hollow_circle: serial.
    """
    mesh = dataset.gen_hollow_circle(0.4, order)
    assert list(mesh.top_cells()) == [("quad", "quad9")[order - 1]]
    assert measure(mesh) == pytest.approx(3 * math.pi, rel=error)
    radius = mesh.points.norm(dim=1)
    for name, r in [("inner", 1.0), ("outer", 2.0)]:
        mask = mesh.point_data[f"is_{name}_boundary"]
        assert torch.equal(mask, (radius - r).abs() < 1e-6)
        assert perimeter(mesh, name) == pytest.approx(2 * math.pi * r, rel=error)


@needs_gmsh
@pytest.mark.parametrize(("order", "error"), [(1, 6e-2), (2, 5e-4), (3, 3e-4), (4, 5e-6)])
def test_row_gen_sphere(order, error):
    """base-api 2 | `gen_sphere(cx, cy, cz=0, r=1)`: tetrahedra.

    features | gen_sphere: serial.
    """
    mesh = dataset.gen_sphere(0.4, order, 1.0, 2.0, 3.0, 0.9)
    assert list(mesh.top_cells()) == [tm.element.cell_name("tetra", order)]
    assert measure(mesh) == pytest.approx(4 / 3 * math.pi * 0.9**3, rel=error)
    assert perimeter(mesh) == pytest.approx(4 * math.pi * 0.9**2, rel=error)
    radius = (mesh.points - torch.tensor([1.0, 2.0, 3.0])).norm(dim=1)
    assert torch.equal(mesh.boundary_mask, (radius - 0.9).abs() < 1e-6)


@needs_gmsh
def test_row_gen_hollow_sphere():
    """base-api 2 | `gen_hollow_sphere`: `is_inner_boundary`, `is_outer_boundary`.

    features | gen_hollow_sphere: serial.
    """
    mesh = dataset.gen_hollow_sphere(0.6)
    assert measure(mesh) == pytest.approx(4 / 3 * math.pi * 7, rel=3e-2)
    for name, r in [("inner", 1.0), ("outer", 2.0)]:
        on_shell = (mesh.points.norm(dim=1) - r).abs() < 1e-6
        assert torch.equal(mesh.point_data[f"is_{name}_boundary"], on_shell)
        assert perimeter(mesh, name) == pytest.approx(4 * math.pi * r**2, rel=8e-2)


@needs_gmsh
def test_row_mesh_gen_in_the_plane():
    """base-api 2 | `MeshGen(...)`: chainable `add_*`, `remove_*`; `gen(show=False)` -> Mesh.

    features | MeshGen: serial.
    """
    shapes = tm.MeshGen(chara_length=0.1).add_rectangle(0, 0, 1, 1, "quad")
    mesh = (
        shapes.add_rectangle(1, 0, 1, 1)
        .remove_circle(1, 0.5, 0.2)
        .remove_rectangle(0, 0, 0.1, 0.1)
        .gen()
    )
    assert set(mesh.top_cells()) == {"quad", "triangle"}
    assert measure(mesh) == pytest.approx(2 - math.pi * 0.04 - 0.01, rel=5e-3)
    # Conforming: the sides of the two types meet, so only the outline and the hole are boundary.
    assert perimeter(mesh) == pytest.approx(6 + 0.4 * math.pi, rel=5e-3)
    assert mesh.points[mesh.cells["quad"]][..., 0].max() < 1 + 1e-9
    assert "is_left_boundary" not in mesh.point_data


@needs_gmsh
def test_row_mesh_gen_in_space():
    """base-api 2 | `MeshGen(dimension=3)`: cubes and spheres, overlapping ones too."""
    shapes = tm.MeshGen(dimension=3, chara_length=0.3, order=2)
    mesh = (
        shapes.add_cube(0, 0, 0, 1, 1, 1)
        .add_cube(0.5, 0, 0, 1, 1, 1)
        .remove_cube(0, 0, 0, 0.5, 0.5, 0.5)
        .gen()
    )
    assert mesh.default_element_type == "tetra10"
    assert measure(mesh) == pytest.approx(1.5 - 0.125)
    ball = (
        tm.MeshGen("tetra10", chara_length=0.4)
        .add_sphere(0, 0, 0, 1)
        .remove_sphere(1, 0, 0, 0.5)
        .gen()
    )
    # What two balls of radii R and r at distance R have in common, R = 1, r = 1/2:
    # pi (R + r - d)^2 (d^2 + 2 d (r + R) - 3 (r - R)^2) / (12 d).
    lens = math.pi * 0.25 * (1 + 3 - 0.75) / 12
    assert measure(ball) == pytest.approx(4 / 3 * math.pi - lens, rel=2e-3)


@needs_gmsh
def test_row_mesh_gen_element_type_overrides():
    """base-api 2 | `MeshGen(element_type=...)`: a mesh name overrides dimension and order."""
    mesh = tm.MeshGen("quad9", dimension=3, order=1, chara_length=0.3).add_circle(0, 0, 1).gen()
    assert list(mesh.top_cells()) == ["quad9"]


def test_row_mesh_gen_refuses():
    """base-api 2 | `MeshGen`: what it cannot do is an error, before gmsh is needed."""
    with pytest.raises(ValueError, match="not available"):
        tm.MeshGen("hexahedron")
    with pytest.raises(ValueError, match="dimension"):
        tm.MeshGen(dimension=3).add_circle(0, 0, 1)
    with pytest.raises(ValueError, match="add one first"):
        tm.MeshGen().remove_circle(0, 0, 1)
    with pytest.raises(ValueError, match="no shape"):
        tm.MeshGen().gen()


@needs_gmsh
def test_row_mesh_gen_with_nothing_left():
    """base-api 2 | `MeshGen.gen`: shapes that vanish are an error."""
    with pytest.raises(ValueError, match="Nothing is left"):
        tm.MeshGen().add_circle(0, 0, 1).remove_circle(0, 0, 2).gen()


@needs_gmsh
def test_row_generators_write_nothing_and_leave_gmsh_alone(tmp_path, monkeypatch, capfd):
    """base-api 2 | generators: no cache file, no output, an open gmsh session stays as it is."""
    import gmsh

    monkeypatch.chdir(tmp_path)
    dataset.gen_circle(0.5, cache_path="mesh.msh")
    assert not gmsh.isInitialized()
    gmsh.initialize(readConfigFiles=False, interruptible=False)
    try:
        gmsh.option.setNumber("General.Terminal", 0)
        gmsh.option.setNumber("Mesh.MeshSizeMax", 0.123)
        gmsh.model.add("mine")
        gmsh.model.occ.addBox(0, 0, 0, 1, 1, 1)
        gmsh.model.occ.synchronize()
        dataset.gen_circle(0.5)
        assert gmsh.model.getCurrent() == "mine"
        assert len(gmsh.model.getEntities(3)) == 1
        assert gmsh.option.getNumber("Mesh.MeshSizeMax") == 0.123
    finally:
        gmsh.finalize()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""


@needs_gmsh
def test_row_generators_give_the_same_mesh_each_time():
    """base-api 2 | generators: the same parameters give the same mesh."""
    one, other = dataset.gen_circle(0.3, 2), dataset.gen_circle(0.3, 2)
    assert torch.equal(one.points, other.points)
    assert torch.equal(one.cells["triangle6"], other.cells["triangle6"])


BROKEN_PIPE = """
import os
import signal
import tensormesh as tm

tm.Mesh.gen_circle(chara_length=0.5)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
reader, writer = os.pipe()
os.close(reader)
try:
    os.write(writer, b"x")
except BrokenPipeError:
    print("alive")
"""


@needs_gmsh
def test_a_write_to_a_process_that_ended_raises_after_gmsh_too():
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_PIPE], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
