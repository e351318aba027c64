"""How even are the parts of each method, and how many facets do they cut?

Prints a Markdown table, which the page on partitioning shows:

    python benchmarks/partition_quality.py > docs/partition_quality.md

Cells: most of a part over the mean, minus one. Cut: facets between cells of different parts, in
brackets as a multiple of the coordinate method's. Nothing here depends on the machine: the same
mesh gives the same parts everywhere.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import tensormesh as tm
from tensormesh.mesh.adjacency import cell_adjacency
from tensormesh.mesh.partition import partition_cells

METHODS = ("coordinate", "metis", "spectral")
BRACKET = Path(__file__).resolve().parents[1] / "tests" / "data" / "bracket.msh"
MESHES: dict[str, Callable[[], tm.Mesh]] = {
    "cube of tetrahedra, 15 a side": lambda: tm.Mesh.gen_cube(n=(15, 15, 15)),
    "cube of tetrahedra, 16 a side": lambda: tm.Mesh.gen_cube(n=(16, 16, 16)),
    "bracket.msh": lambda: tm.Mesh.read(BRACKET),
    "triangles and quadrilaterals": lambda: tm.Mesh.gen_rectangle(
        n=(100, 80), element_type="mixed"
    ),
}


def quality(mesh: tm.Mesh, n_parts: int, method: str) -> tuple[float, int]:
    """Imbalance and cut of a partition."""
    labels = partition_cells(mesh, n_parts, method)
    sizes = torch.bincount(labels, minlength=n_parts).double()
    graph = cell_adjacency(mesh).tocoo()
    part = labels.numpy()
    cut = np.count_nonzero(part[graph.row] != part[graph.col]) // 2
    return float(sizes.max() / sizes.mean()) - 1.0, cut


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 3, 5, 7, 8, 16])
    parser.add_argument("--meshes", nargs="+", choices=list(MESHES), default=list(MESHES))
    options = parser.parse_args()
    print("| mesh | cells | parts |", *(f"{m}: cells | cut |" for m in METHODS))
    print("| --- | --: | --: |", *("--: | --: |" for _ in METHODS))
    for name in options.meshes:
        mesh = MESHES[name]()
        for n_parts in options.parts:
            found = [quality(mesh, n_parts, method) for method in METHODS]
            base = found[0][1]
            cells = (f"{even:.2%} | {cut:,} ({cut / base:.2f}) |" for even, cut in found)
            print(f"| {name} | {mesh.n_elements:,} | {n_parts} |", *cells, flush=True)


if __name__ == "__main__":
    main()
