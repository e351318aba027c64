"""What every peer's process does: the same phases, timed in the same way, as one line of JSON."""

import argparse
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar

import memory
from cases import Case


class Peer:
    """One program that assembles a case. Subclasses say how.

    Attributes
    ----------
    ranks, root
        Number of ranks, and whether this one reports.
    has_symbolic_phase
        Whether `make_pattern` does all that the first call does and later ones do not.
    bytes_sent
        Bytes that this rank sends in a numeric call, where that is known.
    """

    name: ClassVar[str]
    ranks = 1
    root = True
    has_symbolic_phase = False
    bytes_sent: int | None = None

    def __init__(self, case: Case) -> None:
        self.case = case

    def version(self) -> str:
        """Version of the program."""
        raise NotImplementedError

    def make_mesh(self) -> None:
        """Make the mesh on the ranks. Timed."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Compile forms, set coefficient 0. Not timed."""

    def make_pattern(self) -> None:
        """Make what depends on the mesh and not on values. Timed."""

    def set_coefficient(self, k: int) -> None:
        """Make the `k`-th coefficient that the next call uses. Not timed."""

    def move(self, k: int) -> None:
        """Make the `k`-th coordinates that the next call uses. Not timed."""

    def assemble(self) -> Any:
        """Assemble, with the exchange between ranks. Timed."""
        raise NotImplementedError

    def facts(self, result: Any) -> dict[str, float]:
        """``size``, number of ``entries``, their ``sum`` and ``norm``, ``energy`` of the probe."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Wait for the other ranks."""

    def maxima(self, values: list[float]) -> list[float]:
        """Largest of each value over the ranks."""
        return values


def measure(peer: Peer, repeat: int) -> dict[str, Any]:
    """All phases of one process; times in seconds and bytes are those of the slowest rank."""
    times: dict[str, list[float]] = {"mesh": [_seconds(peer, peer.make_mesh)]}
    peer.prepare()
    before = memory.reset_peak()
    symbolic = _seconds(peer, peer.make_pattern)
    numeric, result = _timed(peer, peer.assemble)
    growth = {"first": memory.peak() - before}
    times["first"] = [symbolic + numeric]
    if peer.has_symbolic_phase:
        times["setup"] = [times["mesh"][0] + symbolic]
    facts = {"first": peer.facts(result)}
    for phase, change in (("coefficient", peer.set_coefficient), ("points", peer.move)):
        del result
        times[phase] = []
        for k in range(1, repeat + 1):
            change(k)
            before = memory.reset_peak()
            seconds, result = _timed(peer, peer.assemble)
            growth[phase] = memory.peak() - before
            times[phase].append(seconds)
        facts[phase] = peer.facts(result)
    sent = peer.maxima([float(peer.bytes_sent or 0)])[0]
    return {
        "peer": peer.name,
        "version": peer.version(),
        "ranks": peer.ranks,
        "times": {name: peer.maxima(values) for name, values in times.items()},
        "growth": dict(zip(growth, peer.maxima([float(x) for x in growth.values()]), strict=True)),
        "bytes_sent": None if peer.bytes_sent is None else int(sent),
        "facts": facts,
    }


def _timed(peer: Peer, action: Callable[[], Any]) -> tuple[float, Any]:
    peer.barrier()
    start = perf_counter()
    result = action()
    return perf_counter() - start, result


def _seconds(peer: Peer, action: Callable[[], Any]) -> float:
    return _timed(peer, action)[0]


def case_of_arguments(parser: argparse.ArgumentParser) -> tuple[Case, argparse.Namespace]:
    """Add the arguments that name a case, and read them."""
    parser.add_argument("element")
    parser.add_argument("form")
    parser.add_argument("n", type=int, nargs=3, help="boxes along each side of the cube")
    parser.add_argument("--repeat", type=int, default=3, help="repeated calls of each kind")
    given = parser.parse_args()
    return Case(given.element, given.form, tuple(given.n)), given


def main(peer_class: type[Peer]) -> None:
    """Command line of a peer: print what `measure` gives."""
    case, given = case_of_arguments(argparse.ArgumentParser(description=peer_class.__doc__))
    peer = peer_class(case)
    record = measure(peer, given.repeat)
    if peer.root:
        print(json.dumps(record), flush=True)
