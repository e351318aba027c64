"""Make docs/benchmarks.md and its picture from the results.

python benchmarks/report.py            write them
python benchmarks/report.py --check    1 if the page is not what the results give
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bars import judged, solve_aims
from cases import FORMS
from compare import beyond_matrix, bytes_an_entry, ratio
from plot import draw
from programs import HERE, ROOT

RESULTS = HERE / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "_static" / "assembly_ratios.png"
PHASES = ("first", "coefficient", "points", "setup")

INTRODUCTION = """\
# Benchmarks

This page is made by `benchmarks/report.py` from the output of

```sh
python benchmarks/assembly.py --peer-venv FOLDER
python benchmarks/scaling.py
python benchmarks/solve.py
```

Each program assembles the same matrices on the unit cube, in processes of its own, one thread a
rank. The programs take turns ({runs} processes each if no other number is given, {repeat} repeated
calls in each); a number is the median over processes of the median in a process, on the slowest
rank. Sum and Frobenius norm of the entries and the energy of a smooth function, after each kind of
call, agree between all programs to the relative difference in the last column.

* **first**: the first assembly, with the symbolic phase (DOLFINx: `create_matrix` too).
* **coefficient**: again, with another coefficient where the form has one. All integrals are
  computed; our geometry is kept from the call before.
* **points**: again, with other coordinates.
* **set-up**: `DistributedMesh` from the mesh that each rank has, and the symbolic phase; DOLFINx:
  `create_unit_cube` and `create_matrix`.

DOLFINx's forms are compiled with `-O3 -march=native`, outside the times, and use the quadrature
degree that is exact on tetrahedra, the same points as ours on hexahedra. Cells are straight at each
order: our meshes are first-order ones, `raised`.
"""

MEMORY = """\
## Memory and messages

Growth of resident memory, at its peak on the largest rank, in bytes for each of an even share of
the stored entries. First assembly: beyond mesh and matrix (a value and a column, 12 bytes).
Repeated: beyond what was there before the call.
"""


def page_of(
    assembly: dict[str, Any], scaling: dict[str, Any] | None, solve: dict[str, Any] | None
) -> str:
    """Text of the page."""
    entries = assembly["cases"]
    parts = [INTRODUCTION.format(**assembly["settings"]), _machine(assembly), _bars(entries)]
    if has_picture(entries):
        picture = "![Our time by DOLFINx's, for each form](_static/assembly_ratios.png)"
        parts.append(f"## Ratios\n\n{picture}\n")
    for ranks in sorted({entry["ranks"] for entry in entries}):
        here = [entry for entry in entries if entry["ranks"] == ranks]
        parts.append(_times(here, f"{ranks} rank{'s' if ranks > 1 else ''}"))
    parts += [_memory(entries), _forms(assembly)]
    if scaling is not None:
        parts.append(_scaling(scaling))
    if solve is not None:
        parts.append(_solve(solve))
    return "\n".join(parts)


def has_picture(entries: list[dict[str, Any]]) -> bool:
    """Whether there is something to draw: a comparison with DOLFINx."""
    return any("DOLFINx" in entry["results"] for entry in entries)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown table, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(x: float | None, digits: int = 2) -> str:
    """Number, or a dash."""
    return "–" if x is None else f"{x:.{digits}f}"


def _machine(content: dict[str, Any]) -> str:
    machine = content["machine"]
    versions = {
        name: result["version"] + _processes(result, content["settings"]["runs"])
        for entry in content["cases"]
        for name, result in entry["results"].items()
    }
    listed = "; ".join(f"{name} {version}" for name, version in versions.items())
    absent = "".join(f" Without {name}: {why}." for name, why in content["skipped"].items())
    return (
        f"## Machine\n\n{machine['date']}, commit {machine['commit']}: {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python "
        f"{machine['python']}; load {machine['load_at_start']} at the start. {listed}.{absent}\n"
    )


def _processes(result: dict[str, Any], usual: int) -> str:
    """How many processes there were, if not as many as of the other programs."""
    n = len(result["runs"]["first"])
    return "" if n == usual else f" ({n} processes)" if n > 1 else " (one process)"


def _bars(entries: list[dict[str, Any]]) -> str:
    rows = [
        [
            bar.text,
            number(bar.limit, 3),
            number(worst, 3),
            f"{entry['name']}, {entry['ranks']}",
            "yes" if worst <= bar.limit else "no",
        ]
        for bar, worst, entry in judged(entries)
    ]
    header = ["aim", "at most", "worst", "case, ranks", "met"]
    return f"## What we aim at\n\n{table(header, rows)}"


def _times(entries: list[dict[str, Any]], title: str) -> str:
    rows = []
    known = {phase for entry in entries for phase in entry["results"]["tensormesh"]["seconds"]}
    phases = [phase for phase in PHASES if phase in known]
    for entry in entries:
        results = entry["results"]
        ours = results["tensormesh"]["seconds"]
        by_dolfinx = [ratio(results, phase, "DOLFINx") for phase in phases]
        others = [ratio(results, "coefficient", peer) for peer in ("scikit-fem", "tensormesh-fem")]
        difference = entry["disagreement"]
        rows.append(
            [
                entry["name"],
                f"{entry['cells']:,}",
                *(number(ours.get(phase), 3) for phase in phases),
                *(number(x) for x in by_dolfinx),
                *(number(x, 3) for x in others),
                "–" if difference is None else f"{difference:.0e}",
            ]
        )
    names = [phase.replace("setup", "set-up") for phase in phases]
    header = ["case", "cells", *(f"{x}, s" for x in names), *(f"{x} / DOLFINx" for x in names)]
    header += ["coefficient / scikit-fem", "coefficient / tensormesh-fem", "difference"]
    return f"## {title}\n\n{table(header, rows)}"


def _memory(entries: list[dict[str, Any]]) -> str:
    rows = []
    for entry in entries:
        results, ours = entry["results"], entry["results"]["tensormesh"]
        peer = results.get("DOLFINx")
        sent = ours["bytes_sent"]
        rows.append(
            [
                f"{entry['name']}, {entry['ranks']}",
                f"{ours['entries']:,}",
                number(beyond_matrix(ours), 0),
                number(bytes_an_entry(ours, "coefficient"), 0),
                number(beyond_matrix(peer) if peer else None, 0),
                "–" if sent is None else f"{sent:,}",
            ]
        )
    header = ["case, ranks", "entries", "first", "repeated", "DOLFINx: first", "bytes sent a call"]
    return f"{MEMORY}\n{table(header, rows)}"


def _forms(content: dict[str, Any]) -> str:
    used = {entry["form"] for entry in content["cases"]}
    forms = "".join(f"* `{name}`: {text}\n" for name, text in FORMS.items() if name in used)
    return f"## Forms\n\n{forms}"


def _scaling(content: dict[str, Any]) -> str:
    rows = [
        [
            f"{entry['program']}, {entry['name']}",
            entry["kind"],
            f"{entry['cells'][0]:,}",
            f"{entry['cells'][1]:,}",
            *(number(x, 3) for x in entry["seconds"]),
            f"{100 * entry['efficiency']:.0f} %",
        ]
        for entry in content["cases"]
    ]
    header = ["program, case", "kind", "cells, 1 rank", "2 ranks", "1 rank, s", "2 ranks, s"]
    return (
        "## Scaling\n\nRepeated assembly. Strong: the same mesh; weak: the same number of cells a "
        f"rank. {content['machine']['date']}, load {content['machine']['load_at_start']}.\n\n"
        f"{table([*header, 'efficiency'], rows)}"
    )


def _solve(content: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['program']} {row['version']}, {row['method']}",
            str(row["ranks"]),
            f"{row['size']:,}",
            *(number(row[key], 3) for key in ("setup", "solve", "total")),
            number(row["iterations"], 0),
            number(row.get("bytes_a_dof"), 0),
        ]
        for row in content["cases"]
    ]
    header = ["program, preconditioner", "ranks", "unknowns", "set-up, s", "solve, s", "total, s"]
    aims = [
        [text, number(limit, 2), number(value, 2), "yes" if value <= limit else "no"]
        for text, limit, value in solve_aims(content["cases"])
    ]
    return (
        "## Solve\n\nPoisson on P1 tetrahedra, conjugate gradients until the true residual is 1e-8 "
        "of the load. Memory: peak growth during set-up and solve, beyond the matrix, in bytes an "
        f"unknown. {content['machine']['date']}, load {content['machine']['load_at_start']}.\n\n"
        f"{table([*header, 'iterations', 'memory'], rows)}\n"
        f"{table(['aim', 'at most', 'found', 'met'], aims)}"
    )


def read(path: Path) -> dict[str, Any] | None:
    """Content of a results file, None where there is none."""
    return json.loads(path.read_text()) if path.exists() else None


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    given = parser.parse_args()
    assembly = read(given.results / "assembly.json")
    if assembly is None:
        parser.error(f"there is no assembly.json in {given.results}: run assembly.py first")
    others = (read(given.results / name) for name in ("scaling.json", "solve.json"))
    text = page_of(assembly, *others)
    if given.check:
        return int(not given.page.exists() or given.page.read_text() != text)
    given.page.write_text(text)
    if has_picture(assembly["cases"]):
        draw(assembly["cases"], given.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
