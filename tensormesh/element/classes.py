"""One class a shape of cells: what the reference cell is, by methods of the class."""

from typing import ClassVar

import torch
from torch import Tensor

from tensormesh.element.cell_type import NAMES, cell_name, cell_type
from tensormesh.element.facet import LocalFacet, local_facets
from tensormesh.element.lagrange import reference_nodes, tabulate
from tensormesh.element.quadrature import quadrature
from tensormesh.element.reference import SHAPES


class Element:
    """A shape of cells, with Lagrange bases of several orders; see the subclasses.

    Nodes are numbered as in mesh files (VTK's order), here as everywhere.

    Attributes
    ----------
    shape
        Cell type of order 1.
    dim, n_vertex, n_edge
        Dimension, numbers of vertices and edges.
    edge
        Vertices of each edge.
    points
        Reference coordinates of the vertices.
    is_mix_facet
        Whether the facets are of two shapes.
    """

    shape: ClassVar[str]
    dim: ClassVar[int]
    n_vertex: ClassVar[int]
    n_edge: ClassVar[int]
    edge: ClassVar[tuple[tuple[int, ...], ...]]
    points: ClassVar[tuple[tuple[float, ...], ...]]
    is_mix_facet: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        reference = SHAPES[cls.shape]
        cls.dim = reference.dim
        cls.n_vertex = len(reference.vertices)
        cls.edge = reference.edges
        cls.n_edge = len(reference.edges)
        cls.points = reference.vertices
        cls.is_mix_facet = len({len(facet) for facet in reference.facets}) > 1

    @classmethod
    def get_basis(
        cls,
        order: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Reference coordinates of the nodes, (B, D).

        Raises
        ------
        KeyError
            If the order is not supported.
        """
        return reference_nodes(cell_name(cls.shape, order)).to(device, dtype)

    @classmethod
    def get_quadrature(
        cls,
        order: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> tuple[Tensor, Tensor]:
        """Weights (Q,) and points (Q, D) of the rule of degree `order`.

        The weights are positive; see `tensormesh.element.quadrature` for what is exact.

        Raises
        ------
        ValueError
            If `order` is negative or no integer.
        """
        points, weights = quadrature(cls.shape, order)
        return weights.to(device, dtype), points.to(device, dtype)

    @classmethod
    def get_facet(cls, order: int = 1) -> Tensor | dict[str, Tensor]:
        """Local nodes of each facet, (n_facet, B_f) int64.

        If the facets are of two shapes: {type of the facet: (k, B_f)}.

        Raises
        ------
        KeyError
            If the order is not supported.
        """
        by_type: dict[str, list[tuple[int, ...]]] = {}
        for facet in cls._facets(order):
            by_type.setdefault(facet.cell_name, []).append(facet.nodes)
        tables = {kind: torch.tensor(nodes, device="cpu") for kind, nodes in by_type.items()}
        return tables if cls.is_mix_facet else next(iter(tables.values()))

    @classmethod
    def get_facet_type(cls) -> "type[Element] | tuple[type[Element], ...]":
        """Class of the facets; of two shapes: a class for each facet, in their order.

        Raises
        ------
        NotImplementedError
            For a line: its facets are points, for which there is no class.
        """
        if cls.dim == 1:
            raise NotImplementedError("The facets of a line are points, which have no class.")
        kinds = tuple(element_type2element(facet.cell_name) for facet in cls._facets(1))
        return kinds if cls.is_mix_facet else kinds[0]

    @classmethod
    def get_n_basis(cls, order: int = 1) -> int:
        """Count the nodes of a cell of that order.

        Raises
        ------
        KeyError
            If the order is not supported.
        """
        return cell_type(cell_name(cls.shape, order)).n_nodes

    @classmethod
    def get_n_facet(cls) -> int:
        """Count the facets."""
        return len(SHAPES[cls.shape].facets)

    @classmethod
    def get_gmsh_permutation(cls, n_nodes: int) -> Tensor:
        """Give the identity, (n_nodes,): cells are in the order of mesh files already.

        Raises
        ------
        ValueError
            If no cell of this shape has that many nodes.
        """
        sizes = [
            cell_type(kind).n_nodes for kind, (shape, _) in NAMES.items() if shape == cls.shape
        ]
        if n_nodes not in sizes:
            raise ValueError(f"{cls.__name__} has {sizes} nodes, not {n_nodes}.")
        return torch.arange(n_nodes, device="cpu")

    @classmethod
    def reorder(cls, conn: Tensor, to_gmsh: bool = True) -> Tensor:
        """Give `conn` (E, B) back: cells are in the order of mesh files, in both directions.

        Raises
        ------
        ValueError
            If no cell of this shape has B nodes.
        """
        cls.get_gmsh_permutation(conn.shape[-1])
        return conn

    @classmethod
    def eval_shape_val(cls, p: Tensor, order: int = 1) -> Tensor:
        """Values of the basis at reference points `p` (Q, D), (Q, B), in their dtype.

        Raises
        ------
        KeyError
            If the order is not supported.
        ValueError
            If `p` is not (Q, D).
        """
        return tabulate(cell_name(cls.shape, order), p)[0].to(p.dtype)

    @classmethod
    def eval_shape_grad(cls, coords: Tensor, p: Tensor, order: int = 1) -> tuple[Tensor, Tensor]:
        """Physical gradients of the basis, and Jacobians of the cells.

        Parameters
        ----------
        coords
            Coordinates of the nodes of the cells, (E, B, D).
        p
            Reference points, (Q, D).
        order
            Order of the cells.

        Returns
        -------
        grad, jacobian
            (E, Q, B, D), and (E, Q, D, D) with the derivative of coordinate i along reference axis
            j at [i, j]; differentiable in `coords`.

        Raises
        ------
        KeyError
            If the order is not supported.
        ValueError
            If a shape does not fit.
        """
        n_nodes = cls.get_n_basis(order)
        if coords.ndim != 3 or coords.shape[1:] != (n_nodes, cls.dim):
            raise ValueError(
                f"coords must have shape (E, {n_nodes}, {cls.dim}), got {tuple(coords.shape)}."
            )
        reference = tabulate(cell_name(cls.shape, order), p)[1].to(coords)
        jacobian = torch.einsum("ebi,qbj->eqij", coords, reference)
        inverse = torch.linalg.inv(jacobian)
        return torch.einsum("qbj,eqji->eqbi", reference, inverse), jacobian

    @classmethod
    def _facets(cls, order: int) -> tuple[LocalFacet, ...]:
        return local_facets(cell_name(cls.shape, order))


class Line(Element):
    """The interval [0, 1]."""

    shape = "line"


class Triangle(Element):
    """The triangle (0, 0), (1, 0), (0, 1)."""

    shape = "triangle"


class Quadrilateral(Element):
    """The unit square, vertices around it: (0, 0), (1, 0), (1, 1), (0, 1)."""

    shape = "quad"


class Tetrahedron(Element):
    """The tetrahedron of the origin and the ends of the unit axes."""

    shape = "tetra"


class Hexahedron(Element):
    """The unit cube: the bottom as the quadrilateral, then the top."""

    shape = "hexahedron"


class Prism(Element):
    """Triangle times [0, 1]: bottom, then top."""

    shape = "wedge"


class Pyramid(Element):
    """Unit square with the apex (0, 0, 1)."""

    shape = "pyramid"


_CLASSES: dict[str, type[Element]] = {
    element.shape: element
    for element in (Line, Triangle, Quadrilateral, Tetrahedron, Hexahedron, Prism, Pyramid)
}

element_types: list[str] = [kind for kind, (shape, _) in NAMES.items() if shape in _CLASSES]
"""Supported cell types of dimension 1 or more."""

element_type2order: dict[str, int] = {kind: NAMES[kind][1] for kind in element_types}
"""Cell type: order of its basis."""

element_type2dimension: dict[str, int] = {
    kind: SHAPES[NAMES[kind][0]].dim for kind in element_types
}
"""Cell type: dimension."""


def element_type2element(name: str) -> type[Element]:
    """Class of cell type `name`, for instance `Tetrahedron` for ``"tetra10"``.

    Raises
    ------
    KeyError
        If the type is not supported or is a vertex, with the supported ones.
    """
    shape = cell_type(name).shape
    if shape not in _CLASSES:
        raise KeyError(f"There is no class for {name!r}; there are {', '.join(element_types)}.")
    return _CLASSES[shape]
