"""The table of features: what there is, where it works, and the test that shows it.

A test says in its docstring which cells of the table it shows, one line or more::

    features | LaplaceElementAssembler, triangle6: serial, differentiable.

Rows, a colon, columns of `COLUMNS`. Tests are read, not imported.
``python docs/features.py`` writes the page anew.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contracts import ROOT, docstring_lines

PAGE = ROOT / "docs" / "features.md"
LINE = re.compile(r"features \| (.+): ([a-z, ]+)\.?")
COLUMNS = {
    "serial": "serial",
    "distributed": "distributed",
    "differentiable": "differentiable",
    "device": "GPU-ready",
}
INTRO = """\
# Features and their tests

A mark stands where a test shows it, and leads to that test; a cell without one is empty, whatever
may work. *Serial* is one process, *distributed* several ranks (or parts), *differentiable* compares
gradients with finite differences, a formula or a dense computation.

*GPU-ready*: the test runs on a GPU where one is present; so far none was. Elsewhere, and on ranks,
it runs on the CPU while what names no device lands on another one: it fails unless all that is made
follows its inputs.
"""

# Rows of the table: public names, and what has none of its own.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Meshes": (
        "Mesh",
        "MeshGen",
        "gen_rectangle",
        "gen_cube",
        "gen_L",
        "gen_circle",
        "gen_sphere",
        "gen_hollow_rectangle",
        "gen_hollow_cube",
        "gen_hollow_circle",
        "gen_hollow_sphere",
        "Mesh.raised",
        "facets and boundary",
        "groups of cells and facets",
        "several cell types in a mesh",
        "surfaces in space",
        "graph_coloring",
        "graph_partition",
    ),
    "Files and pictures": (
        "files of gmsh",
        "files of VTK",
        "files that meshio reads",
        "distributed.io.write_pvtu",
        "SparseMatrix.save",
        "Mesh.plot",
        "plot_field",
        "plot_mesh",
        "distributed.plot.plot_partition",
    ),
    "Cells": (
        "Element",
        "Line",
        "Triangle",
        "Quadrilateral",
        "Tetrahedron",
        "Hexahedron",
        "Prism",
        "Pyramid",
        "Transformation",
        "CellType",
        "cell_type",
        "cell_name",
        "element_type2element",
        "LocalFacet",
        "local_facets",
        "facet_quadrature",
        "quadrature",
        "reference_nodes",
        "tabulate",
    ),
    "Orders of cells": (
        *("line", "line3", "line4", "line5"),
        *("triangle", "triangle6", "triangle10", "triangle15"),
        *("quad", "quad9", "quad16", "quad25"),
        *("tetra", "tetra10", "tetra20", "tetra35"),
        *("hexahedron", "hexahedron27", "hexahedron64", "hexahedron125"),
        *("wedge", "wedge18", "wedge40", "wedge75"),
        *("pyramid", "pyramid14"),
    ),
    "Weak forms": (
        "ElementAssembler",
        "NodeAssembler",
        "FacetAssembler",
        "FacetBilinearAssembler",
        "MixedElementAssembler",
        "MixedFacetAssembler",
        "MixedFacetBilinearAssembler",
        "MixedNodeAssembler",
        "Field",
        "BlockLayout",
        "LaplaceElementAssembler",
        "AnisotropicLaplaceElementAssembler",
        "MassElementAssembler",
        "ScaledMassElementAssembler",
        "LinearElasticityElementAssembler",
        "NeoHookeanModel",
        "const_node_assembler",
        "func_node_assembler",
        "robin_operator",
        "port_source",
        "PerQuadraturePoint",
        "vector-valued forms",
        "fields at nodes",
        "values per cell",
        "parameters of a form",
        "complex forms",
        "single precision",
        "moved points",
        "energies",
        "forces and tangents",
        "history at quadrature points",
        "blocks of cells (batch_size)",
    ),
    "Formulas at a point": (
        "sym",
        "skew",
        "strain",
        "determinant",
        "lame",
        "isotropic_stress",
        "deviatoric_stress",
        "deviatoric_stress_norm",
        "voigt_shape_grad",
        "voigt_stiffness",
    ),
    "Matrices": (
        "SparseMatrix",
        "SparseTensor",
        "SparsityPattern",
        "DSparseMatrix",
        "products with vectors and columns",
        "transposes",
        "sums of matrices",
        "blocks of matrices",
        "reductions",
        "diagonal",
    ),
    "Constraints": ("Condenser", "MultiPoint", "periodic_pairs", "rigid_modes"),
    "Linear systems": (
        *("method direct", "method cg", "method minres", "method gmres", "method bicgstab"),
        *("method lgmres", "method qmr", "method lsqr", "method lsmr", "method auto"),
        "preconditioner jacobi",
        "preconditioner multilevel",
        "preconditioner schwarz",
        "preconditioner of the user's",
        "Jacobi",
        "Multilevel",
        "Schwarz",
        "null_space",
        "several right-hand sides",
        "complex systems",
        "SparseMatrix.factorized",
        "SparseMatrix.solve_batch",
        "SolveInfo",
    ),
    "Eigenvalues": ("eigsh", "eigsh with a mass"),
    "Nonlinear systems": ("newton", "NewtonInfo", "NewtonStep", "nonlinear_solve"),
    "Steps in time": ("ThetaMethod", "Newmark", "GeneralizedAlpha", "Motion"),
    "Ranks": (
        "DistributedMesh",
        "distributed",
        "distributed_element_assemble",
        "distributed_element_assemble_per_rank",
        "distributed_element_assemble_to_sparse",
        "distributed_node_assemble",
        "DeviceMesh",
        "init_device_mesh",
        "broadcast_from_rank0",
        "partition by coordinates",
        "partition by spectra",
        "partition by METIS",
    ),
    "Containers of tensors": ("BufferDict", "BufferList"),
}


@dataclass(frozen=True)
class Cell:
    """A cell of the table and the test that shows it."""

    row: str
    column: str
    test: str


def cells(tests: Path = ROOT / "tests") -> Iterator[Cell]:
    """Cells that the docstrings of all tests name."""
    for line, where in docstring_lines(tests):
        if found := LINE.fullmatch(line):
            rows, columns = (part.split(", ") for part in found.groups())
            yield from (Cell(row, column, where) for row in rows for column in columns)


def page(found: list[Cell]) -> str:
    """The page, in Markdown."""
    first: dict[tuple[str, str], str] = {}
    for cell in found:
        first.setdefault((cell.row, cell.column), cell.test)
    lines = [INTRO]
    for title, rows in SECTIONS.items():
        lines += [f"## {title}\n", _table_row(title.lower(), COLUMNS.values())]
        lines.append("| --- |" + " :-: |" * len(COLUMNS))
        for row in rows:
            tests = [first.get((row, column)) for column in COLUMNS]
            marks = ["" if test is None else f"✓[^{_label(test)}]" for test in tests]
            lines.append(_table_row(_shown(row), marks))
        lines.append("")
    return "\n".join([*lines, *_footnotes(set(first.values()))]) + "\n"


def _table_row(name: str, others: "Iterator[str] | list[str]") -> str:
    return "| " + " | ".join([name, *others]) + " |"


def _shown(row: str) -> str:
    return f"`{row}`" if re.fullmatch(r"[A-Za-z_][\w.]*", row) and " " not in row else row


def _label(test: str) -> str:
    return re.sub(r"\W+", "-", test.removeprefix("tests/").replace(".py::test", ""))


def _footnotes(tests: set[str]) -> Iterator[str]:
    for test in sorted(tests):
        file, _, name = test.partition("::")
        yield f"[^{_label(test)}]: `{name}` in `{file}`"


def empty(found: list[Cell]) -> list[str]:
    """Rows that no test shows anything of."""
    shown = {cell.row for cell in found}
    return [row for rows in SECTIONS.values() for row in rows if row not in shown]


def strangers(found: list[Cell]) -> list[Cell]:
    """Cells of rows or columns that the table lacks."""
    rows = {row for rows in SECTIONS.values() for row in rows}
    return [cell for cell in found if cell.row not in rows or cell.column not in COLUMNS]


if __name__ == "__main__":
    PAGE.write_text(page(list(cells())))
