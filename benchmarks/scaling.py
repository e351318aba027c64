"""How does repeated assembly scale from one rank to two?

    python benchmarks/scaling.py             strong and weak, results to benchmarks/results
    python benchmarks/scaling.py --small --runs 1

Strong: the same mesh on both. Weak: twice the cells on two ranks. One thread a rank; one rank works
on a plain mesh. The programs and the numbers of ranks take turns.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from cases import Case, chosen_cases
from compare import Record, combine
from machine import describe_machine
from programs import HERE, Program, known_programs

log = logging.getLogger("benchmarks")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="scaling", help="of the file in results/")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of the file")
    parser.add_argument("--small", action="store_true", help="small meshes")
    parser.add_argument("--cases", nargs="+", default=["P1-laplace-cell", "Q2-laplace-cell"])
    parser.add_argument("--peers", nargs="+", default=["DOLFINx"])
    parser.add_argument("--runs", type=int, default=5, help="processes of each program")
    parser.add_argument("--repeat", type=int, default=5, help="repeated calls in each process")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process may take")
    parser.add_argument("--dolfinx-python", default="/usr/bin/python3")
    return parser.parse_args()


def measure(program: Program, case: Case, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Strong and weak scaling of one case."""
    jobs = {"one": (case, 1), "strong": (case, 2), "weak": (case.doubled(), 2)}
    records: dict[str, list[Record]] = {name: [] for name in jobs}
    for _ in range(given.runs):
        for name, (mesh, ranks) in jobs.items():
            records[name].append(program.run(mesh, ranks, given.repeat, given.timeout))
    seconds = {
        name: combine(several)["seconds"]["coefficient"] for name, several in records.items()
    }
    entries = []
    for kind, ideal in (("strong", 0.5), ("weak", 1.0)):
        entries.append(
            {
                "program": program.name,
                "name": case.name,
                "kind": kind,
                "cells": [case.n_cells, jobs[kind][0].n_cells],
                "seconds": [seconds["one"], seconds[kind]],
                "efficiency": ideal * seconds["one"] / seconds[kind],
            }
        )
    return entries


def main() -> None:
    """Measure, print, write."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    given = arguments()
    content: dict[str, Any] = {"machine": describe_machine(), "cases": []}
    given.output.mkdir(parents=True, exist_ok=True)
    for program in known_programs(given.dolfinx_python, None):
        if program.module != "ours" and program.name not in given.peers:
            continue
        absence = program.absence()
        if absence is not None:
            log.info("without %s: %s", program.name, absence)
            continue
        for case in chosen_cases(given.cases, given.small):
            for entry in measure(program, case, given):
                content["cases"].append(entry)
                one, two = entry["seconds"]
                print(
                    f"{entry['program']:<12}{entry['name']:<20}{entry['kind']:<8}"
                    f"1 rank {one:.4f} s, 2 ranks {two:.4f} s, "
                    f"efficiency {100 * entry['efficiency']:.0f} %",
                    flush=True,
                )
    path = given.output / f"{given.name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
