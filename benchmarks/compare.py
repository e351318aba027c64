"""Records of several processes to one result: medians, agreement, ratios."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

AGREEMENT = 1e-10
"""Largest relative difference of sum, norm and energy between programs."""

Record = dict[str, Any]


def combine(records: Sequence[Record]) -> Record:
    """Medians over processes; in a process, the median of its calls."""
    first = records[0]
    runs = {
        phase: [median(record["times"][phase]) for record in records] for phase in first["times"]
    }
    entries = first["facts"]["first"]["entries"]
    growth = {phase: median(r["growth"][phase] for r in records) for phase in first["growth"]}
    return {
        "version": first["version"],
        "ranks": first["ranks"],
        "seconds": {phase: median(values) for phase, values in runs.items()},
        "runs": runs,
        "entries": int(entries),
        "growth_bytes": growth,
        "bytes_sent": first["bytes_sent"],
        "facts": first["facts"],
    }


def disagreement(results: Mapping[str, Record]) -> float | None:
    """Largest relative difference of any program's facts from the first one's; None for one only.

    The sum is seen against itself or the norm, whichever is larger: that of a stiffness matrix is
    zero, that of a mass matrix the volume. Another number of unknowns counts as infinite.
    """
    reference, *others = (result["facts"] for result in results.values())
    differences = [_difference(reference, other) for other in others]
    return max(differences, default=None)


def _difference(reference: Record, other: Record) -> float:
    largest = 0.0
    for phase, ours in reference.items():
        theirs = other[phase]
        if ours["size"] != theirs["size"]:
            return float("inf")
        scales = {
            "sum": max(abs(ours["sum"]), ours["norm"]),
            "norm": ours["norm"],
            "energy": abs(ours["energy"]),
        }
        for fact, scale in scales.items():
            largest = max(largest, abs(ours[fact] - theirs[fact]) / scale)
    return largest


def ratio(results: Mapping[str, Record], phase: str, peer: str) -> float | None:
    """Our time by that of `peer`; None where one of them is missing."""
    try:
        return results["tensormesh"]["seconds"][phase] / results[peer]["seconds"][phase]
    except KeyError:
        return None


def bytes_an_entry(result: Record, phase: str) -> float:
    """Peak growth of the largest rank by an even share of the stored entries."""
    growth: float = result["growth_bytes"][phase] * result["ranks"] / result["entries"]
    return growth


def beyond_matrix(result: Record) -> float:
    """What the first assembly takes beyond the mesh and the matrix, in bytes an entry.

    The matrix is a value and a column of 32 bits: 12 bytes.
    """
    return max(0.0, bytes_an_entry(result, "first") - 12)
