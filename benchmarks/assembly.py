"""How fast is assembly, beside other programs on this machine in the same minute?

    python benchmarks/assembly.py                            the table of docs/benchmarks.md
    python benchmarks/assembly.py --small --runs 1           some seconds: does all of it work?
    python benchmarks/assembly.py --cases P1-laplace-cell P2-mass --ranks 1
    python benchmarks/assembly.py --peer-venv FOLDER         with tensormesh-fem, installed there

Each program runs in a process of its own, in turn, some times over. Programs that are not here are
left out with a note. The results go to benchmarks/results/NAME.json; `report.py` makes the page.
"""

import argparse
import json
import logging
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cases import Case, chosen_cases
from compare import AGREEMENT, Record, combine, disagreement, ratio
from machine import describe_machine
from programs import HERE, Program, known_programs, make_peer_environment

log = logging.getLogger("benchmarks")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="assembly", help="of the file in results/")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of the file")
    parser.add_argument("--small", action="store_true", help="small meshes")
    parser.add_argument("--cases", nargs="+", help="default: all")
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--peers", nargs="+", help="default: all that are here")
    parser.add_argument("--runs", type=int, default=5, help="processes of each program")
    parser.add_argument("--repeat", type=int, default=3, help="repeated calls in each process")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process may take")
    parser.add_argument("--dolfinx-python", default="/usr/bin/python3")
    parser.add_argument("--peer-venv", type=Path, help="for tensormesh-fem; made if missing")
    return parser.parse_args()


def present_programs(given: argparse.Namespace) -> tuple[list[Program], dict[str, str]]:
    """Programs that are here and asked for, ours first, and why others are not."""
    if given.peer_venv and not given.peer_venv.exists():
        make_peer_environment(given.peer_venv, version("torch").partition("+")[0])
    programs, skipped = [], {}
    for program in known_programs(given.dolfinx_python, given.peer_venv):
        asked = program.module == "ours" or given.peers is None or program.name in given.peers
        why = program.absence() if asked else "not asked for"
        if why is None:
            programs.append(program)
        else:
            log.info("without %s: %s", program.name, why)
            skipped[program.name] = why
    return programs, skipped


def interleaved(
    programs: list[Program], case: Case, ranks: int, given: argparse.Namespace
) -> dict[str, Record]:
    """Result of each program: all of them once, then all of them again, ..."""
    able = [program for program in programs if program.refusal(case, ranks) is None]
    records: dict[str, list[Record]] = {program.name: [] for program in able}
    for _ in range(given.runs):
        for program in able:
            records[program.name].append(program.run(case, ranks, given.repeat, given.timeout))
    return {name: combine(several) for name, several in records.items()}


def measure_all(given: argparse.Namespace) -> dict[str, Any]:
    """Everything that the file holds; written after each case, so that a long run can be cut."""
    cases = chosen_cases(given.cases, given.small)
    programs, skipped = present_programs(given)
    content: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {"runs": given.runs, "repeat": given.repeat, "threads": 1},
        "skipped": skipped,
        "cases": [],
    }
    path = given.output / f"{given.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    for case in cases:
        for ranks in given.ranks:
            results = interleaved(programs, case, ranks, given)
            entry = {
                "name": case.name,
                "element": case.element,
                "form": case.form,
                "n": case.n,
                "cells": case.n_cells,
                "ranks": ranks,
                "disagreement": disagreement(results),
                "results": results,
            }
            content["cases"].append(entry)
            path.write_text(json.dumps(content, indent=1) + "\n")
            print(row(entry), flush=True)
    return content


HEADER = (
    f"{'case':<20}{'cells':>9}{'ranks':>6}  "
    f"{'ours: first':>11}{'coeff.':>9}{'points':>9} s  "
    f"{'by DOLFINx: first':>17}{'coeff.':>8}{'points':>8}{'set-up':>8}  "
    f"{'sk-fem':>8}{'tm-fem':>8}  {'difference':>10}"
)


def row(entry: dict[str, Any]) -> str:
    """One line of the table: our seconds, and their ratios to those of the peers."""
    results = entry["results"]
    ours = results["tensormesh"]["seconds"]
    ratios = [ratio(results, p, "DOLFINx") for p in ("first", "coefficient", "points", "setup")]
    others = [ratio(results, "coefficient", p) for p in ("scikit-fem", "tensormesh-fem")]
    first, *more = (_number(x) for x in ratios)
    difference = entry["disagreement"]
    return (
        f"{entry['name']:<20}{entry['cells']:>9}{entry['ranks']:>6}  "
        f"{ours['first']:>11.4f}{ours['coefficient']:>9.4f}{ours['points']:>9.4f}    "
        f"{first:>17}{''.join(f'{x:>8}' for x in more)}  "
        f"{''.join(f'{_number(x, 3):>8}' for x in others)}  "
        f"{'-' if difference is None else f'{difference:.0e}':>10}"
        f"{'' if (difference or 0) <= AGREEMENT else '  DIFFERS'}"
    )


def _number(x: float | None, digits: int = 2) -> str:
    return "-" if x is None else f"{x:.{digits}f}"


def main() -> int:
    """Measure, print, write; 1 if programs disagree."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    given = arguments()
    print(HEADER, flush=True)
    content = measure_all(given)
    wrong = [e["name"] for e in content["cases"] if (e["disagreement"] or 0) > AGREEMENT]
    if wrong:
        log.error("results differ by more than %.0e: %s", AGREEMENT, ", ".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
