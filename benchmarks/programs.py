"""The programs that are compared: how each is started, and whether it is here."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LAUNCHER = ("TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Program:
    """One program and the interpreter that has it.

    Parameters
    ----------
    name
        As in the table.
    module
        Its process, ``python -m peers.<module>``.
    package
        What must be importable.
    python
        The interpreter.
    launcher
        ``"torchrun"``, ``"mpirun"``, or None where it knows one rank only.
    refuses
        Why it cannot do a case on a number of ranks; None if it can.
    """

    name: str
    module: str
    package: str
    python: str
    launcher: str | None
    refuses: Callable[[Case, int], str | None] = lambda case, ranks: None

    def absence(self) -> str | None:
        """Why it cannot be run here; None if it can."""
        if not Path(self.python).exists():
            return f"there is no {self.python}"
        search = f"import sys, importlib.util as i; sys.exit(i.find_spec({self.package!r}) is None)"
        command = [self.python, "-c", search]
        done = subprocess.run(command, env=self._environment(), cwd=HERE, capture_output=True)
        return f"{self.python} has no {self.package}" if done.returncode else None

    def refusal(self, case: Case, ranks: int) -> str | None:
        """Why it is not asked for `case`; None if it is."""
        if ranks > 1 and self.launcher is None:
            return "one rank only"
        return self.refuses(case, ranks)

    def run(self, case: Case, ranks: int, repeat: int, timeout: float) -> dict[str, Any]:
        """Record of one process, or one job, as `harness.measure` gives it.

        Raises
        ------
        RuntimeError
            If it fails; the message ends with what it said.
        """
        arguments = [case.element, case.form, *map(str, case.n), "--repeat", str(repeat)]
        command = [*self._start(ranks), "-m", f"peers.{self.module}", *arguments]
        done = subprocess.run(
            command,
            cwd=HERE,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        records = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or len(records) != 1:
            raise RuntimeError(
                f"{self.name} failed on {case.name}, {ranks} ranks ({' '.join(command)}):\n"
                f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            )
        record: dict[str, Any] = json.loads(records[0])
        return record

    def _start(self, ranks: int) -> list[str]:
        if ranks == 1:
            return [self.python]
        if self.launcher == "mpirun":
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            return ["mpirun", *root, "-n", str(ranks), self.python]
        torchrun = [self.python, "-m", "torch.distributed.run", "--standalone"]
        return [*torchrun, "--nproc-per-node", str(ranks)]

    def _environment(self) -> dict[str, str]:
        """One thread a process; this checkout's package for ours, and for no other."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER)}
        environment.update(dict.fromkeys(THREADS, "1"))
        environment.pop("PYTHONPATH", None)
        if self.module in ("ours", "solve_ours"):
            environment["PYTHONPATH"] = str(ROOT)
        return environment


def _of_tensormesh_fem(case: Case, ranks: int) -> str | None:
    if case.name not in ("P1-laplace", "P1-elasticity", "P1-mass"):
        return "compared on P1 Laplace, mass and elasticity"
    if ranks > 1 and case.form == "elasticity":
        return "its distributed assembly takes one unknown a node"
    return None


def _of_scikit_fem(case: Case, ranks: int) -> str | None:
    return "it has no tetrahedra of order 3" if case.element == "P3" else None


def known_programs(dolfinx_python: str, peer_venv: Path | None) -> list[Program]:
    """Ours first, then the peers."""
    peer_python = "the environment of tensormesh-fem (--peer-venv)"
    if peer_venv is not None:
        peer_python = str(peer_venv / "bin" / "python")
    return [
        Program("tensormesh", "ours", "tensormesh", sys.executable, "torchrun"),
        Program("DOLFINx", "dolfinx", "dolfinx", dolfinx_python, "mpirun"),
        Program("scikit-fem", "scikit_fem", "skfem", sys.executable, None, _of_scikit_fem),
        Program(
            "tensormesh-fem",
            "tensormesh_fem",
            "tensormesh",
            peer_python,
            "torchrun",
            _of_tensormesh_fem,
        ),
    ]


def make_peer_environment(folder: Path, torch_version: str) -> None:
    """Virtual environment with tensormesh-fem and the same torch as ours."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    packages = [f"torch=={torch_version}", "tensormesh-fem"]
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", *packages], check=True)
