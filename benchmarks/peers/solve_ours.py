"""Process that solves Poisson's equation with this package: `python -m peers.solve_ours`."""

import argparse
import json
from time import perf_counter
from typing import Any

import memory
import torch
import torch.distributed as dist
from harness import case_of_arguments
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import Multilevel


def system(n: tuple[int, int, int]) -> tuple[Any, Tensor]:
    """Matrix and load of the interior nodes of the cube."""
    mesh = tm.Mesh.gen_cube(n=n)
    dmesh = tm.DistributedMesh(mesh, None if dist.is_initialized() else 1)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(tm.const_node_assembler(1.0), dmesh)
    boundary = ((mesh.points == 0) | (mesh.points == 1)).any(1)
    A, b = tm.Condenser(boundary)(K, f)
    return A, b


def solved(A: Any, b: Tensor, multilevel: bool, before: int) -> dict[str, float]:
    """One set-up and solve: seconds, iterations, peak beyond `before`, norm of the solution."""
    memory.release()
    memory.reset_peak()
    barrier()
    start = perf_counter()
    M = Multilevel(A) if multilevel else "jacobi"
    barrier()
    middle = perf_counter()
    x, info = A.solve(b, method="cg", preconditioner=M, rtol=1e-8, return_info=True)
    barrier()
    end = perf_counter()
    growth = reduced(float(memory.peak() - before), dist.ReduceOp.MAX)
    return {
        "setup": middle - start,
        "solve": end - middle,
        "iterations": info.iterations,
        "growth": growth,
        "solution": reduced(float(x @ x), dist.ReduceOp.SUM) ** 0.5,
    }


def reduced(value: float, op: Any) -> float:
    """Value reduced over the ranks."""
    number = torch.tensor(value, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(number, op)
    return number.item()


def barrier() -> None:
    """Wait for the other ranks."""
    if dist.is_initialized():
        dist.barrier()


def main() -> None:
    """Print one record."""
    torch.set_num_threads(1)
    case, given = case_of_arguments(argparse.ArgumentParser(description=__doc__))
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    A, b = system(case.n)
    memory.release()
    before = memory.reset_peak()  # mesh and matrix; what the first solve keeps is growth
    methods = {
        name: [solved(A, b, name == "multilevel", before) for _ in range(given.repeat)]
        for name in ("cg-jacobi", "multilevel")
    }
    record = {
        "version": f"{tm.__version__}, torch {torch.__version__}",
        "ranks": dist.get_world_size() if dist.is_initialized() else 1,
        "size": A.shape[0],
        "norm": reduced(float(A.values @ A.values), dist.ReduceOp.SUM) ** 0.5,
        "methods": methods,
    }
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(record), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
