"""A PVTU and its pieces as other programs read them: XML, and meshio for each piece."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import meshio
import numpy as np
from numpy.typing import NDArray

import tensormesh as tm

Cell = tuple[str, bytes]  # its type, and the coordinates of its nodes in order
Declared = dict[str, tuple[str, int]]  # name of an array: VTK type, number of components


@dataclass(frozen=True)
class Pvtu:
    """Pieces in the order of the index, and the arrays that the index says they have."""

    pieces: list[meshio.Mesh]
    point_arrays: Declared
    cell_arrays: Declared

    def cells(self) -> Counter[Cell]:
        """How often each cell occurs over all pieces."""
        return Counter(
            cell
            for piece in self.pieces
            for block in piece.cells
            for cell in _cells(block.type, piece.points[block.data])
        )

    def nodal(self, name: str) -> dict[bytes, NDArray]:
        """Value at each point, by its coordinates; copies in several pieces must be equal."""
        found: dict[bytes, NDArray] = {}
        for piece in self.pieces:
            for point, value in zip(piece.points, piece.point_data[name], strict=True):
                known = found.setdefault(point.tobytes(), value)
                assert np.array_equal(known, value), f"{name} at {point}: {known} and {value}"
        return found


def read_pvtu(path: Path) -> Pvtu:
    """Read an index and its pieces; what it declares must be what each piece has."""
    file = ElementTree.parse(path).getroot()
    assert file.attrib["type"] == "PUnstructuredGrid"
    (grid,) = file
    assert grid.tag == "PUnstructuredGrid"
    sources = [piece.attrib["Source"] for piece in grid.iter("Piece")]
    arrays = {tag: _declared(grid, tag) for tag in ("PPoints", "PPointData", "PCellData")}
    for source in sources:
        piece = ElementTree.parse(path.parent / source).getroot()
        for tag, declared in arrays.items():
            assert _declared(piece, tag.removeprefix("P")) == declared, (source, tag)
    pieces = [meshio.read(path.parent / source) for source in sources]
    return Pvtu(pieces, arrays["PPointData"], arrays["PCellData"])


def cells_of(mesh: tm.Mesh) -> Counter[Cell]:
    """The top cells of a mesh, each once, in the form that `Pvtu.cells` has them."""
    flat = mesh.points.detach().numpy()
    points = np.zeros((len(flat), 3), dtype=flat.dtype)
    points[:, : flat.shape[1]] = flat
    return Counter(
        cell for kind, nodes in mesh.top_cells().items() for cell in _cells(kind, points[nodes])
    )


def _cells(kind: str, corners: NDArray) -> Iterator[Cell]:
    return ((kind, cell.tobytes()) for cell in corners)


def _declared(file: ElementTree.Element, tag: str) -> Declared:
    return {
        array.attrib["Name"]: (
            array.attrib["type"],
            int(array.attrib.get("NumberOfComponents", "1")),
        )
        for group in file.iter(tag)
        for array in group
    }
