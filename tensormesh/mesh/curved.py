"""Meshes of disks, rings and balls, by gmsh (extra ``gmsh``)."""

from collections.abc import Sequence

from torch import Tensor

from tensormesh.mesh.boundary_cells import mesh_with_boundary
from tensormesh.mesh.generators import refuse_to_plot
from tensormesh.mesh.mesh import Mesh
from tensormesh.mesh.mesh_gen import MeshGen


def gen_circle(
    chara_length: float = 0.1,
    order: int = 1,
    element_type: str = "tri",
    cx: float = 0.0,
    cy: float = 0.0,
    r: float = 1.0,
    visualize: bool = False,
    cache_path: str | None = None,
    verbose: bool = False,
) -> Mesh:
    """Mesh a disk.

    Parameters
    ----------
    chara_length
        Size of the cells.
    order
        Order of the cells, 1 to 4; their nodes at the boundary are on the circle.
    element_type
        ``"tri"`` or ``"quad"``.
    cx, cy, r
        Centre and radius.
    visualize
        Not available: plot the mesh that is returned.
    cache_path
        Accepted for compatibility; nothing is written.
    verbose
        Let gmsh write to the terminal.

    Returns
    -------
    Mesh
        Float64 points; the lines of the boundary too; point data ``is_boundary``.

    Raises
    ------
    ValueError
        If a size, the order or the element type is not as above.
    ImportError
        If gmsh is not installed.
    NotImplementedError
        If `visualize` is asked for.
    """
    refuse_to_plot(visualize)
    shapes = MeshGen(None, 2, order, chara_length, None, verbose)
    return shapes.add_circle(cx, cy, r, element_type).gen()


def gen_hollow_circle(
    chara_length: float = 0.1,
    order: int = 1,
    element_type: str = "quad",
    cx: float = 0.0,
    cy: float = 0.0,
    r_inner: float = 1.0,
    r_outer: float = 2.0,
    visualize: bool = False,
    cache_path: str | None = None,
    verbose: bool = False,
) -> Mesh:
    """Mesh a ring.

    Parameters
    ----------
    chara_length, order, element_type, cx, cy, visualize, cache_path, verbose
        As of `gen_circle`.
    r_inner, r_outer
        Radii.

    Returns
    -------
    Mesh
        As of `gen_circle`, and the groups ``inner`` and ``outer``, with point data
        ``is_inner_boundary`` and ``is_outer_boundary``.

    Raises
    ------
    ValueError, ImportError, NotImplementedError
        As of `gen_circle`.
    """
    refuse_to_plot(visualize)
    _check_radii(r_inner, r_outer)
    shapes = MeshGen(None, 2, order, chara_length, None, verbose)
    mesh = shapes.add_circle(cx, cy, r_outer, element_type).remove_circle(cx, cy, r_inner).gen()
    return _with_shells(mesh, (cx, cy), r_inner, r_outer)


def gen_sphere(
    chara_length: float = 0.1,
    order: int = 1,
    cx: float = 0.0,
    cy: float = 0.0,
    cz: float = 0.0,
    r: float = 1.0,
    visualize: bool = False,
    cache_path: str | None = None,
    verbose: bool = False,
) -> Mesh:
    """Mesh a ball with tetrahedra.

    Parameters
    ----------
    chara_length, order, visualize, cache_path, verbose
        As of `gen_circle`.
    cx, cy, cz, r
        Centre and radius.

    Returns
    -------
    Mesh
        Float64 points; the triangles of the boundary too; point data ``is_boundary``.

    Raises
    ------
    ValueError, ImportError, NotImplementedError
        As of `gen_circle`.
    """
    refuse_to_plot(visualize)
    shapes = MeshGen(None, 3, order, chara_length, None, verbose)
    return shapes.add_sphere(cx, cy, cz, r).gen()


def gen_hollow_sphere(
    chara_length: float = 0.1,
    order: int = 1,
    cx: float = 0.0,
    cy: float = 0.0,
    cz: float = 0.0,
    r_inner: float = 1.0,
    r_outer: float = 2.0,
    visualize: bool = False,
    cache_path: str | None = None,
    verbose: bool = False,
) -> Mesh:
    """Mesh a ball without a ball inside, with tetrahedra.

    Parameters
    ----------
    chara_length, order, visualize, cache_path, verbose
        As of `gen_circle`.
    cx, cy, cz
        Centre.
    r_inner, r_outer
        Radii.

    Returns
    -------
    Mesh
        As of `gen_sphere`, and the groups ``inner`` and ``outer``, with point data
        ``is_inner_boundary`` and ``is_outer_boundary``.

    Raises
    ------
    ValueError, ImportError, NotImplementedError
        As of `gen_circle`.
    """
    refuse_to_plot(visualize)
    _check_radii(r_inner, r_outer)
    shapes = MeshGen(None, 3, order, chara_length, None, verbose)
    mesh = shapes.add_sphere(cx, cy, cz, r_outer).remove_sphere(cx, cy, cz, r_inner).gen()
    return _with_shells(mesh, (cx, cy, cz), r_inner, r_outer)


def _check_radii(r_inner: float, r_outer: float) -> None:
    if not r_inner < r_outer:
        raise ValueError(f"r_inner must be below r_outer, got {r_inner!r} and {r_outer!r}.")


def _with_shells(mesh: Mesh, centre: Sequence[float], r_inner: float, r_outer: float) -> Mesh:
    """Mesh with the boundary parted into nodes nearer to the inner and to the outer radius."""
    radius = (mesh.points - mesh.points.new_tensor(centre)).norm(dim=1)
    inner: Tensor = radius < (r_inner + r_outer) / 2
    return mesh_with_boundary(mesh.points, mesh.top_cells(), {"inner": inner, "outer": ~inner})
