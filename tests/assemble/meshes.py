"""Small meshes of each cell type that fill the unit line, square or cube, straight or distorted."""

import numpy as np
import torch
from torch import Tensor

from tensormesh.element.cell_type import NAMES, cell_name, cell_type
from tensormesh.element.lagrange import reference_nodes, tabulate
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh import Mesh

FIRST_ORDER = ("line", "triangle", "quad", "tetra", "hexahedron", "wedge", "pyramid")
SECOND_ORDER = (
    "line3",
    "triangle6",
    "quad9",
    "tetra10",
    "hexahedron27",
    "wedge18",
    "pyramid14",
)
CELL_TYPES = FIRST_ORDER + SECOND_ORDER
HIGH_ORDER = tuple(kind for kind, (_, order) in NAMES.items() if order > 2)
"""Orders 3 and 4."""

_GENERATED = {
    "triangle": "tri",
    "quad": "quad",
    "tetra": "tet",
    "hexahedron": "hex",
    "wedge": "wedge",
}
# The six faces of the unit cube, right-handed about the inward normal: bases of pyramids.
_FACES = ((0, 1, 2, 3), (4, 7, 6, 5), (0, 4, 5, 1), (1, 5, 6, 2), (2, 6, 7, 3), (3, 7, 4, 0))
_CORNERS = np.array(
    [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
)


def filled(kind: str, n: int = 2) -> Mesh:
    """Unit line, square or cube in `n` boxes along each axis, cut into straight cells `kind`."""
    shape = cell_type(kind).shape
    if shape == "line":
        points = torch.linspace(0, 1, n + 2, dtype=torch.float64).unsqueeze(1) ** 1.3
        start = torch.arange(n + 1)
        mesh = Mesh.from_arrays(points, {"line": torch.stack([start, start + 1], 1)})
    elif shape == "pyramid":
        mesh = _pyramids(n)
    elif cell_type(kind).dim == 2:
        mesh = gen_rectangle(n=(n + 1, n), element_type=_GENERATED[shape])
    else:
        mesh = gen_cube(n=(n, n, n), element_type=_GENERATED[shape])
    mesh = only_top_cells(mesh)
    return mesh if cell_type(kind).order == 1 else raised(mesh, cell_type(kind).order)


def only_top_cells(mesh: Mesh) -> Mesh:
    return Mesh.from_arrays(mesh.points, mesh.top_cells())


def _pyramids(n: int) -> Mesh:
    grid = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), -1).reshape(-1, 3)
    corners = grid[:, None] + _CORNERS
    bases = corners[:, np.array(_FACES)].reshape(-1, 4, 3)
    centres = np.repeat(grid + 0.5, 6, axis=0)[:, None]
    return _joined("pyramid", np.concatenate([bases, centres], axis=1) / n)


def _joined(kind: str, corners: np.ndarray) -> Mesh:
    """Mesh of cells with nodes at `corners` (E, B, D), equal ones merged."""
    flat = corners.reshape(-1, corners.shape[-1])
    _, first, cells = np.unique(np.round(flat, 9), axis=0, return_index=True, return_inverse=True)
    points = torch.from_numpy(flat[first].astype(np.float64))
    return Mesh.from_arrays(points, {kind: torch.from_numpy(cells.reshape(corners.shape[:2]))})


def raised(mesh: Mesh, order: int = 2) -> Mesh:
    """The same cells with nodes of `order` where the first-order map puts them."""
    ((kind, cells),) = mesh.top_cells().items()
    higher = cell_name(cell_type(kind).shape, order)
    values, _ = tabulate(kind, reference_nodes(higher))
    return _joined(higher, torch.einsum("qb,ebd->eqd", values, mesh.points[cells]).numpy())


def bulged(mesh: Mesh, size: float = 0.12) -> Mesh:
    """Inner nodes moved smoothly, the boundary kept: curved or non-affine cells, same domain."""
    x = mesh.points
    bubble = (4 * x * (1 - x)).prod(dim=1, keepdim=True)
    direction = torch.tensor([1.0, -0.7, 0.5], dtype=x.dtype)[: mesh.dim]
    return moved(mesh, x + size * bubble * direction)


def sheared(mesh: Mesh) -> Mesh:
    """Image under an affine map whose determinant is `SHEAR_VOLUME` of the dimension."""
    return moved(mesh, mesh.points @ _SHEAR[: mesh.dim, : mesh.dim].T + 0.3)


# Lower triangular, so the determinant is the product of its diagonal.
_SHEAR = torch.tensor([[1.5, 0, 0], [0.4, 0.8, 0], [-0.3, 0.2, 1.25]], dtype=torch.float64)
SHEAR_VOLUME = {1: 1.5, 2: 1.2, 3: 1.5}


def moved(mesh: Mesh, points: Tensor) -> Mesh:
    return Mesh.from_arrays(points, mesh.cells.to_dict())


def distorted(kind: str, n: int = 2) -> Mesh:
    """Cells that are neither equal nor affine (where the type allows it) in a sheared box."""
    return sheared(bulged(filled(kind, n)))


def mixed() -> Mesh:
    """Unit square of quads and triangles."""
    return only_top_cells(gen_rectangle(n=(4, 2), element_type="mixed"))
