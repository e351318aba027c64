"""`MeshGen`: meshes of shapes that are added and taken away, by gmsh (extra ``gmsh``)."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

from tensormesh.arguments import check_order, check_positive
from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.boundary_cells import mesh_with_boundary
from tensormesh.mesh.gmsh_session import gmsh_model, model_cells
from tensormesh.mesh.mesh import Mesh


@dataclass(frozen=True)
class _Step:
    """One shape: how gmsh makes it, whether it is added or removed, and whether into quads."""

    make: Callable[[ModuleType], int]
    add: bool
    quads: bool = False


class MeshGen:
    """Builds a mesh from simple shapes, in the order of the calls.

    Parameters
    ----------
    element_type
        Cell type by name, for instance ``"triangle6"``, ``"quad"`` or ``"tetra"``; it overrides
        `dimension` and `order`, and ``element=`` of the calls. Hexahedra are not available.
    dimension
        2 or 3.
    order
        Order of the cells, 1 to 4.
    chara_length
        Size of the cells.
    cache_path
        Accepted for compatibility; nothing is written.
    verbose
        Let gmsh write to the terminal.

    Raises
    ------
    ValueError
        If a parameter is not as above.

    Examples
    --------
    A plate with a hole::

        MeshGen(chara_length=0.05).add_rectangle(0, 0, 1, 1).remove_circle(0.5, 0.5, 0.2).gen()
    """

    def __init__(
        self,
        element_type: str | None = None,
        dimension: int = 2,
        order: int = 1,
        chara_length: float = 0.1,
        cache_path: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._quads: bool | None = None
        if element_type is not None:
            kind = cell_type(element_type)
            if kind.shape not in ("triangle", "quad", "tetra"):
                raise ValueError(
                    f"element_type={element_type!r} is not available: use triangles, quads or "
                    "tetrahedra."
                )
            dimension, order, self._quads = kind.dim, kind.order, kind.shape == "quad"
        if dimension not in (2, 3):
            raise ValueError(f"dimension must be 2 or 3, got {dimension!r}.")
        check_order(order)
        _check_positive(chara_length=chara_length)
        self.dimension = dimension
        self.order = order
        self.chara_length = chara_length
        self.verbose = verbose
        self._steps: list[_Step] = []

    def add_rectangle(
        self, left: float, bottom: float, width: float, height: float, element: str = "tri"
    ) -> Self:
        """Add a rectangle, of triangles (``"tri"``) or of quads (``"quad"``)."""
        return self._rectangle(left, bottom, width, height, element)

    def remove_rectangle(self, left: float, bottom: float, width: float, height: float) -> Self:
        """Take a rectangle away."""
        return self._rectangle(left, bottom, width, height, None)

    def add_circle(self, cx: float, cy: float, r: float, element: str = "tri") -> Self:
        """Add a disk, of triangles (``"tri"``) or of quads (``"quad"``)."""
        return self._circle(cx, cy, r, element)

    def remove_circle(self, cx: float, cy: float, r: float) -> Self:
        """Take a disk away."""
        return self._circle(cx, cy, r, None)

    def add_cube(
        self, x: float, y: float, z: float, dx: float, dy: float, dz: float, element: str = "tet"
    ) -> Self:
        """Add a box of tetrahedra, with a corner at (x, y, z)."""
        return self._cube(x, y, z, dx, dy, dz, element)

    def remove_cube(self, x: float, y: float, z: float, dx: float, dy: float, dz: float) -> Self:
        """Take a box away."""
        return self._cube(x, y, z, dx, dy, dz, None)

    def add_sphere(self, x: float, y: float, z: float, r: float) -> Self:
        """Add a ball of tetrahedra."""
        return self._sphere(x, y, z, r, "tet")

    def remove_sphere(self, x: float, y: float, z: float, r: float) -> Self:
        """Take a ball away."""
        return self._sphere(x, y, z, r, None)

    def gen(self, show: bool = False) -> Mesh:
        """Make the mesh.

        Shapes that overlap or touch are meshed with common nodes.

        Parameters
        ----------
        show
            Not available: plot the mesh that is returned.

        Returns
        -------
        Mesh
            Float64 points; the facets of the boundary too; point data ``is_boundary``.

        Raises
        ------
        ValueError
            If nothing was added, or nothing is left.
        ImportError
            If gmsh is not installed.
        NotImplementedError
            If `show` is asked for.
        """
        if show:
            raise NotImplementedError("show=True is not available: plot the mesh it returns.")
        if not self._steps:
            raise ValueError("There is no shape to mesh: call add_rectangle or the like first.")
        with gmsh_model(self._options(), self.verbose) as gmsh:
            for tag, quads in self._build(gmsh).items():
                if quads:
                    gmsh.model.mesh.setRecombine(2, tag)
            gmsh.model.mesh.generate(self.dimension)
            gmsh.model.mesh.setOrder(self.order)
            points, cells = model_cells(gmsh, self.dimension)
        return mesh_with_boundary(points, cells, {})

    def _options(self) -> dict[str, float]:
        return {
            "Mesh.MeshSizeMin": self.chara_length,
            "Mesh.MeshSizeMax": self.chara_length,
            "Mesh.SecondOrderIncomplete": 0,
            "Mesh.HighOrderOptimize": float(self.order > 1),
            # Quads only, no triangles left over: blossom with a subdivision.
            "Mesh.RecombinationAlgorithm": 3,
        }

    def _build(self, gmsh: ModuleType) -> dict[int, bool]:
        """Apply the steps in the current model, {entity: whether it becomes quads}."""
        shapes: dict[int, bool] = {}
        for step in self._steps:
            kinds = [*shapes.values(), step.quads]
            entities = [(self.dimension, tag) for tag in [*shapes, step.make(gmsh)]]
            became = [entities]
            if shapes:
                combine = gmsh.model.occ.fragment if step.add else gmsh.model.occ.cut
                became = combine(entities[:-1], entities[-1:])[1]
            if not step.add:
                kinds, became = kinds[:-1], became[: len(kinds) - 1]
            # Where shapes overlap, the first of them says into what the piece is cut.
            pieces = list(zip(kinds, became, strict=True))
            shapes = {tag: kind for kind, found in reversed(pieces) for _, tag in found}
            if not shapes:
                raise ValueError("Nothing is left of the shapes that were added.")
        gmsh.model.occ.synchronize()
        return shapes

    def _rectangle(
        self, left: float, bottom: float, width: float, height: float, element: str | None
    ) -> Self:
        _check_positive(width=width, height=height)
        return self._step(
            2, element, lambda gmsh: gmsh.model.occ.addRectangle(left, bottom, 0, width, height)
        )

    def _circle(self, cx: float, cy: float, r: float, element: str | None) -> Self:
        _check_positive(r=r)
        return self._step(2, element, lambda gmsh: gmsh.model.occ.addDisk(cx, cy, 0, r, r))

    def _cube(
        self,
        x: float,
        y: float,
        z: float,
        dx: float,
        dy: float,
        dz: float,
        element: str | None,
    ) -> Self:
        _check_positive(dx=dx, dy=dy, dz=dz)
        return self._step(3, element, lambda gmsh: gmsh.model.occ.addBox(x, y, z, dx, dy, dz))

    def _sphere(self, x: float, y: float, z: float, r: float, element: str | None) -> Self:
        _check_positive(r=r)
        return self._step(3, element, lambda gmsh: gmsh.model.occ.addSphere(x, y, z, r))

    def _step(self, dim: int, element: str | None, make: Callable[[Any], int]) -> Self:
        """Note a shape; `element` None removes it."""
        if dim != self.dimension:
            raise ValueError(
                f"A shape of dimension {dim} does not fit a mesh of dimension {self.dimension}."
            )
        allowed = ("tri", "quad") if dim == 2 else ("tet",)
        if element is not None and element not in allowed:
            raise ValueError(f"element must be one of {', '.join(allowed)}, got {element!r}.")
        if element is None and not self._steps:
            raise ValueError("There is nothing to take a shape away from: add one first.")
        quads = element == "quad" if self._quads is None else self._quads
        self._steps.append(_Step(make, element is not None, quads))
        return self


def _check_positive(**sizes: float) -> None:
    for name, size in sizes.items():
        check_positive(name, size)
