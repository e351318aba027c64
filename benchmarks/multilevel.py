"""Do the iterations of the multilevel preconditioner grow with the number of ranks?

Cubes of P1 tetrahedra with a fixed number of nodes a rank, conjugate gradients to 1e-8: Poisson;
Poisson with a coefficient that jumps by 1e4 from cell to cell at random; elasticity with rigid
motions. More ranks than cores are possible: iterations are exact, seconds are then not.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from programs import HERE, LAUNCHER, ROOT, THREADS
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import Multilevel

log = logging.getLogger("benchmarks")

JUMP = 1e4


class Diffusion(tm.ElementAssembler):
    """Laplacian with a coefficient a cell."""

    def forward(self, gradu: Tensor, gradv: Tensor, k: Tensor) -> Tensor:
        """Integrand."""
        return k * (gradu @ gradv)


def poisson(mesh: tm.Mesh, dmesh: tm.DistributedMesh, jump: float = 1.0) -> tuple[Any, ...]:
    """Matrix, load and near-null vectors (the default)."""
    generator = torch.Generator().manual_seed(0)
    high = torch.rand(mesh.n_elements, generator=generator) < 0.5
    k = torch.where(high, jump, 1.0).to(mesh.dtype)
    K = tm.distributed_element_assemble(Diffusion, dmesh, call_kwargs={"element_data": {"k": k}})
    f = tm.distributed_node_assemble(tm.const_node_assembler(1.0), dmesh)
    return *tm.Condenser(mesh.points[:, 0] == 0)(K, f), None


def jumps(mesh: tm.Mesh, dmesh: tm.DistributedMesh) -> tuple[Any, ...]:
    """Poisson with a coefficient that jumps."""
    return poisson(mesh, dmesh, JUMP)


def elasticity(mesh: tm.Mesh, dmesh: tm.DistributedMesh) -> tuple[Any, ...]:
    """Clamped at one side, and its own weight."""
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    modes = dmesh.rigid_modes()
    condenser = tm.Condenser((mesh.points[:, 0] == 0).repeat_interleave(3))
    return *condenser(K, modes[:, 2]), condenser.restrict(modes)


CASES = {"poisson": poisson, "jumps": jumps, "elasticity": elasticity}


def measure(name: str, n: int, options: dict[str, Any]) -> dict[str, Any]:
    """One system on the ranks of this job: set up, solve."""
    mesh = tm.Mesh.gen_cube(n=(n, n, n))
    dmesh = tm.DistributedMesh(mesh, None if dist.is_initialized() else 1)
    A, b, vectors = CASES[name](mesh, dmesh)
    barrier()
    start = perf_counter()
    M = Multilevel(A, vectors, **options)
    barrier()
    middle = perf_counter()
    info = A.solve(b, preconditioner=M, return_info=True)[1]
    return {
        "unknowns": A.shape[0],
        "iterations": info.iterations,
        "setup": middle - start,
        "solve": perf_counter() - middle,
        "sizes": M.sizes,
        "complexity": M.operator_complexity,
    }


def barrier() -> None:
    """Wait for the other ranks."""
    if dist.is_initialized():
        dist.barrier()


def worker(given: argparse.Namespace) -> None:
    """One rank: print the record of each repetition on rank 0."""
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    options = {"theta": given.theta, "degree": given.degree}
    records = [measure(given.worker, given.boxes, options) for _ in range(given.repeat)]
    if int(os.environ.get("RANK", 0)) == 0:
        print(json.dumps(min(records, key=lambda r: r["setup"] + r["solve"])), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def run(name: str, ranks: int, nodes: int, given: argparse.Namespace) -> dict[str, Any]:
    """Record of a job with about `nodes` nodes a rank.

    Raises
    ------
    RuntimeError
        If it fails; the message ends with what it said.
    """
    boxes = round((nodes * ranks) ** (1 / 3)) - 1
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    arguments = ["--worker", name, "--boxes", str(boxes), "--repeat", str(given.repeat)]
    arguments += ["--theta", str(given.theta), "--degree", str(given.degree)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER)}
    environment |= dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*start, str(Path(__file__).resolve()), *arguments],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=given.timeout,
    )
    records = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(records) != 1:
        raise RuntimeError(f"{name} on {ranks} ranks failed:\n{done.stdout}\n{done.stderr[-4000:]}")
    record: dict[str, Any] = json.loads(records[0])
    return record


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--nodes", type=int, default=20_000, help="nodes a rank")
    parser.add_argument("--elastic-nodes", type=int, default=5_000, help="the same, elasticity")
    parser.add_argument("--theta", type=float, default=0.0)
    parser.add_argument("--degree", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds a job may take")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--boxes", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Start the jobs and print the table."""
    given = arguments()
    if given.worker:
        return worker(given)
    print(f"{'case':<12}{'ranks':>6}{'unknowns':>10}{'iterations':>12}{'set-up':>9}{'solve':>9}")
    for name in given.cases:
        nodes = given.elastic_nodes if name == "elasticity" else given.nodes
        for ranks in given.ranks:
            r = run(name, ranks, nodes, given)
            print(
                f"{name:<12}{ranks:>6}{r['unknowns']:>10}{r['iterations']:>12}"
                f"{r['setup']:>8.2f}s{r['solve']:>8.2f}s   levels {r['sizes']}, "
                f"complexity {r['complexity']:.2f}",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()
