"""How fast is a sharded solve, beside PETSc on this machine in the same minute?

    python benchmarks/solve.py                   P1 Poisson on 64^3 boxes, 1 and 2 ranks
    python benchmarks/solve.py --small --runs 1

Conjugate gradients to 1e-8 of the true residual, one thread a rank, the same matrix (its norm and
that of the solution are compared). The programs take turns; a number is the median.
"""

import argparse
import json
import logging
import sys
from pathlib import Path
from statistics import median
from typing import Any

from cases import Case
from machine import describe_machine
from programs import HERE, Program

log = logging.getLogger("benchmarks")

MATRIX, SOLUTION = 1e-10, 1e-6
"""Largest relative difference of the norms of the matrix, and of solutions."""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of the file")
    parser.add_argument("--small", action="store_true", help="a small mesh")
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--runs", type=int, default=5, help="processes of each program")
    parser.add_argument("--repeat", type=int, default=2, help="solves in each process")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process may take")
    parser.add_argument("--petsc-python", default="/usr/bin/python3")
    return parser.parse_args()


def combined(program: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each method: medians over processes of the medians in one."""
    rows = []
    for method in records[0]["methods"]:
        solves = [record["methods"][method] for record in records]
        row = {
            "program": program,
            "method": method,
            **{k: records[0][k] for k in ("ranks", "size")},
        }
        row |= {k: median(median(s[k] for s in run) for run in solves) for k in solves[0][0]}
        row["total"] = median(median(s["setup"] + s["solve"] for s in run) for run in solves)
        if "growth" in row:
            row["bytes_a_dof"] = row["growth"] * row["ranks"] / row["size"]
        rows.append({**row, "matrix": records[0]["norm"], "version": records[0]["version"]})
    return rows


def differs(rows: list[dict[str, Any]]) -> bool:
    """Whether norms of matrices or solutions differ between programs."""
    return any(
        row["size"] != rows[0]["size"] or abs(row[key] - rows[0][key]) > bound * rows[0][key]
        for row in rows
        for key, bound in (("matrix", MATRIX), ("solution", SOLUTION))
    )


def main() -> int:
    """Measure, print, write; 1 if programs disagree."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    given = arguments()
    n = 8 if given.small else 64
    case = Case("P1", "laplace", (n, n, n))
    programs = []
    for program in (
        Program("tensormesh", "solve_ours", "tensormesh", sys.executable, "torchrun"),
        Program("PETSc", "solve_petsc", "petsc4py", given.petsc_python, "mpirun"),
    ):
        why = program.absence()
        if why is None:
            programs.append(program)
        else:
            log.info("without %s: %s", program.name, why)
    content: dict[str, Any] = {"machine": describe_machine(), "cases": []}
    wrong = False
    for ranks in given.ranks:
        records: dict[str, list[dict[str, Any]]] = {program.name: [] for program in programs}
        for _ in range(given.runs):
            for program in programs:
                records[program.name].append(program.run(case, ranks, given.repeat, given.timeout))
        rows = [row for name, several in records.items() for row in combined(name, several)]
        wrong = wrong or differs(rows)
        content["cases"] += rows
        for row in rows:
            memory = f"{row['bytes_a_dof']:8.0f} B/unknown" if "bytes_a_dof" in row else ""
            print(
                f"{row['program']:<12}{row['method']:<12}{ranks} ranks  set-up {row['setup']:.3f} s"
                f"  solve {row['solve']:.3f} s  {row['iterations']:>5.0f} iterations {memory}",
                flush=True,
            )
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "solve.json").write_text(json.dumps(content, indent=1) + "\n")
    if wrong:
        log.error("matrices or solutions differ")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
