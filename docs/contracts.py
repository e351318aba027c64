"""The page of promises: which test shows which row of the contracts.

A test says in its docstring what it shows, one line a row, the first of them first::

    distributed-api DistributedMesh | `devices`: one per part, or an error.
    known-faults | 22: RCB in 3 parts of 246 triangles.

The contract, a heading of it (or none), a bar, the row. Tests are read, not imported.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"(base-api|distributed-api|device-mesh|known-faults)(?: ([^|]+?))? \| (.+)")

# Headings of each contract and what stands below them. Where rows are listed, each needs a test
# whose text begins with it.
HEADINGS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "base-api": {
        "1": ("names", ()),
        "2": ("meshes, cells, generators", ()),
        "3": ("assemblers", ()),
        "4": ("matrices", ()),
        "5": ("conditions", ()),
        "6": ("graphs", ()),
    },
    "distributed-api": {
        "DistributedMesh": (
            "a mesh in parts",
            (
                "`num_partitions`",
                "`method`",
                "`devices`",
                "attributes",
                "parts",
                "quality",
                "no silent fallback",
                "errors",
                "memory",
                "`weights=`",
                "`quality()`",
                "`boundary_mask`",
                "`index_map`",
                "`plot()`",
            ),
        ),
        "Device meshes": ("which ranks", ("`device_mesh=`",)),
        "Ownership": (
            "who owns a shared node",
            ("lowest rank", '`ownership="balanced"`', "unknown rule", "a part may own no row"),
        ),
        "per-rank assembly": (
            "`distributed_element_assemble_per_rank`",
            ("lockstep", "not initialised", "`call_kwargs`", "before the job"),
        ),
        "distributed_element_assemble": (
            "in a job and in a single process",
            ("in a job", "single process", "an exception names its part"),
        ),
        "distributed_element_assemble_to_sparse": ("a global matrix", ("a `SparseMatrix`",)),
        "distributed_node_assemble": ("vectors", ("owned slice", "data in any form")),
        "@distributed": (
            "classes",
            ("`Distributed<Name>`", "`TypeError`", "the original class", "the symbolic phase"),
        ),
        "DSparseMatrix": (
            "row-sharded matrices",
            (
                "`partition_uuid=`",
                "`partition`",
                "`layout_signature`",
                "`@`",
                "`@` with `DTensor`",
                "`solve`",
                "`T`",
                "`diagonal()`",
                "`torch_sla.solve(D, b)`",
                "torch-sla's I/O",
                "torch-sla's other functions",
                "`sum mean prod max min norm`",
                "in a single process",
            ),
        ),
        "broadcast_from_rank0": (
            "tensors that one rank makes",
            ("`factory()`", "an exception", "no group", "`dst_device`", "`device_mesh=`"),
        ),
        "Boundary conditions": (
            "`Condenser` on sharded systems",
            ("mask and value", "called again", "a length that fits none", "nothing is gathered"),
        ),
        "Gradients": (
            "what is replicated stays so",
            ("replicated inputs", "part or owned slice", "`gather`", "finite differences"),
        ),
        "Errors": ("no rank waits for another", ("every rank", "ranks that differ")),
    },
    "device-mesh": {
        "init_device_mesh": (
            "meshes of all ranks",
            ("errors", "not initialised", "row-major"),
        ),
        "DeviceMesh": (
            "meshes of some ranks",
            (
                "`mesh`",
                "ranks",
                "sizes",
                "neither or both",
                "dim names",
                "`device_type`",
            ),
        ),
        "members": (
            "what a mesh can do",
            (
                "`shape`",
                "`size(mesh_dim)`",
                "without a process group",
                "`get_coordinate()`",
                "`get_local_rank()`",
                "`get_group()`",
                "`get_all_groups()`",
                "`mesh[name]`",
                "`_flatten`",
                "`_concatenate`",
                "`from_group`",
                "`with mesh:`",
                "`==`",
                "`repr`",
                "`pickle`",
                "groups are lazy",
                "`backend_override`",
            ),
        ),
        "Beyond": (
            "torch, devices, several problems",
            ("interop", "default", "device of a rank", "2-D jobs", "time-out"),
        ),
    },
    "known-faults": {
        str(n): (text, ())
        for n, text in enumerate(
            (
                "moved points are used",
                "facets are chosen by facets",
                "pyramids",
                "nodes of a quadrilateral in the file's order",
                "default rules integrate mass",
                "high orders number their nodes right",
                "rows are test functions",
                "constants",
                "values at points, vectors a cell",
                "dtypes",
                "memory of high-order cells",
                "surfaces in space",
                "layouts are equal by content",
                "conditions: complex, integer, used twice",
                "second derivatives of a solve",
                "singular systems are named",
                "wrong lengths, wrong indices, sums",
                "inverted and degenerate cells",
                "vector-valued forms on ranks",
                "global data on ranks",
                "all partitioners work, others are refused",
                "RCB in three parts",
                "gradients on ranks",
                "systems that are not symmetric, on ranks",
                "complex, several right-hand sides, transpose, on ranks",
                "sums of matrices of one mesh",
                "one entry a position",
                "moved points on ranks",
                "boundary integrals on ranks",
                "small parts, other dtypes",
                "conditions on ranks, twice",
                "points without cells, points with gradients",
                "as many parts as ranks",
            ),
            start=1,
        )
    },
}
# What no test shows yet, or not all of it.
WAITING: dict[tuple[str, str], str] = {
    ("known-faults", "6"): "tested to order four, of which the elements are; order five is refused",
}


@dataclass(frozen=True)
class Row:
    """A row of a contract and the test that shows it."""

    contract: str
    heading: str
    text: str
    test: str


def rows(tests: Path = ROOT / "tests") -> Iterator[Row]:
    """Rows that the docstrings of all tests name."""
    for line, where in docstring_lines(tests):
        yield from _row(line, where)


def docstring_lines(tests: Path) -> Iterator[tuple[str, str]]:
    """Lines of the docstrings of all tests, each with ``file::test``."""
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                where = f"{path.relative_to(tests.parent).as_posix()}::{node.name}"
                for line in (ast.get_docstring(node) or "").splitlines():
                    yield line, where


def _row(line: str, where: str) -> Iterator[Row]:
    found = LINE.fullmatch(line)
    if found is None:
        return
    contract, heading, text = found.groups()
    if contract == "known-faults" and not heading:
        heading, _, text = text.partition(": ")
    yield Row(contract, heading or "", text, where)


def page(found: list[Row]) -> str:
    """Tables of all contracts, in Markdown."""
    return "\n".join(line for contract in HEADINGS for line in _contract(contract, found))


def _contract(contract: str, found: list[Row]) -> Iterator[str]:
    yield f"## {contract}\n"
    for heading, (title, _) in HEADINGS[contract].items():
        mine = [row for row in found if (row.contract, row.heading) == (contract, heading)]
        yield f"### {heading}: {title}\n"
        if (contract, heading) in WAITING:
            yield f"*{WAITING[contract, heading].capitalize()}.*\n"
        if mine:
            yield "| row | test |\n| --- | --- |"
            for row in mine:
                file, _, name = row.test.partition("::")
                yield f"| {row.text.replace('|', chr(92) + '|')} | `{name}` in `{file}` |"
            yield ""


def unshown(found: list[Row]) -> list[tuple[str, str, str]]:
    """Headings and rows that neither a test shows nor the list of what waits has."""
    missing = []
    for contract, headings in HEADINGS.items():
        for heading, (_, needed) in headings.items():
            texts = [r.text for r in found if (r.contract, r.heading) == (contract, heading)]
            if not texts and (contract, heading) not in WAITING:
                missing.append((contract, heading, ""))
            missing += [
                (contract, heading, row)
                for row in needed
                if not any(text.startswith(row) for text in texts)
            ]
    return missing


def strangers(found: list[Row]) -> list[Row]:
    """Rows below a heading that no contract has."""
    return [row for row in found if row.heading not in HEADINGS[row.contract]]
