"""What the project asks of its assembly, and how far a results file is from it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from compare import beyond_matrix, ratio

Entry = dict[str, Any]
JUDGED = ("laplace", "laplace-cell", "laplace-nodal", "mass", "elasticity")


@dataclass(frozen=True)
class Bar:
    """An upper limit on a value of each case that it is for."""

    text: str
    limit: float
    value: Callable[[Entry], float | None]
    applies: Callable[[Entry], bool]

    def worst(self, entries: list[Entry]) -> tuple[float, Entry] | None:
        """Largest value and its case; None where nothing was measured."""
        values = [(self.value(entry), entry) for entry in entries if self.applies(entry)]
        known = [(value, entry) for value, entry in values if value is not None]
        return max(known, key=lambda pair: pair[0], default=None)


def _by(peer: str, phase: str) -> Callable[[Entry], float | None]:
    return lambda entry: ratio(entry["results"], phase, peer)


def _memory(entry: Entry) -> float:
    return beyond_matrix(entry["results"]["tensormesh"])


def _judged(entry: Entry) -> bool:
    return entry["form"] in JUDGED


def _scalar_p1(entry: Entry) -> bool:
    return entry["element"] == "P1" and entry["form"] != "elasticity" and _judged(entry)


def _others(entry: Entry) -> bool:
    return _judged(entry) and not _scalar_p1(entry)


def _on(ranks: int, *names: str) -> Callable[[Entry], bool]:
    return lambda entry: entry["ranks"] == ranks and entry["name"] in names


def _small_library_on(ranks: int) -> Callable[[Entry], bool]:
    return _on(ranks, "P1-laplace", "P1-elasticity")


BARS = [
    Bar(
        "new coefficient, P1 scalar forms, by DOLFINx",
        0.5,
        _by("DOLFINx", "coefficient"),
        _scalar_p1,
    ),
    Bar("new coefficient, other forms, by DOLFINx", 0.8, _by("DOLFINx", "coefficient"), _others),
    Bar("new points, by DOLFINx", 1.2, _by("DOLFINx", "points"), _judged),
    Bar("first assembly, by DOLFINx", 1.5, _by("DOLFINx", "first"), _judged),
    Bar("set-up on 2 ranks, by DOLFINx", 0.5, _by("DOLFINx", "setup"), _on(2, "P1-laplace")),
    Bar(
        "repeated, 1 rank, by tensormesh-fem",
        1 / 15,
        _by("tensormesh-fem", "coefficient"),
        _small_library_on(1),
    ),
    Bar(
        "repeated, 2 ranks, by tensormesh-fem",
        1 / 40,
        _by("tensormesh-fem", "coefficient"),
        _small_library_on(2),
    ),
    Bar("memory beyond mesh and matrix, bytes an entry", 150, _memory, _judged),
]


def judged(entries: list[Entry]) -> Iterator[tuple[Bar, float, Entry]]:
    """Each bar that something was measured for, with the worst value and its case."""
    for bar in BARS:
        worst = bar.worst(entries)
        if worst is not None:
            yield bar, *worst


def solve_aims(rows: list[Entry]) -> Iterator[tuple[str, float, float]]:
    """Each aim of the solves that was measured: its text, its limit, and what was found."""
    found = {(row["program"], row["method"], row["ranks"]): row for row in rows}
    for (program, method, ranks), ours in found.items():
        if program != "tensormesh":
            continue
        for peer in ("cg-jacobi",) if method == "cg-jacobi" else ("hypre", "gamg"):
            theirs = found.get(("PETSc", peer, ranks))
            if theirs is None:
                continue
            yield (
                f"{method}, {ranks}: time by {peer} of PETSc",
                1.0,
                ours["total"] / theirs["total"],
            )
            if method == "cg-jacobi":
                change = abs(ours["iterations"] / theirs["iterations"] - 1)
                yield f"{method}, {ranks}: difference of iterations", 0.02, change
        if method == "cg-jacobi":
            yield f"{method}, {ranks}: bytes an unknown", 450.0, ours["bytes_a_dof"]
