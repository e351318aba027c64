"""Process that solves Poisson's equation with PETSc: `python -m peers.solve_petsc`."""

import argparse
import json
from time import perf_counter

import numpy as np
import scipy.sparse as sp
from cube import cube_points, kuhn_tetrahedra
from harness import case_of_arguments
from petsc4py import PETSc

PRECONDITIONERS = {"cg-jacobi": "jacobi", "hypre": "hypre", "gamg": "gamg"}


def stiffness(n: tuple[int, int, int]) -> sp.csr_matrix:
    """P1 matrix of the interior nodes; entries that are zero are stored, as in assembly."""
    points, cells = cube_points(n), kuhn_tetrahedra(n)
    corners = points[cells[:6]]  # the boxes are alike
    edges = corners[:, 1:] - corners[:, :1]
    gradients = np.linalg.inv(edges).transpose(0, 2, 1)
    gradients = np.concatenate([-gradients.sum(1, keepdims=True), gradients], axis=1)
    volumes = np.abs(np.linalg.det(edges)) / 6
    local = volumes[:, None, None] * (gradients @ gradients.transpose(0, 2, 1))
    values = np.broadcast_to(local, (len(cells) // 6, 6, 4, 4)).ravel()
    rows, cols = np.repeat(cells, 4, axis=1).ravel(), np.tile(cells, 4).ravel()
    whole = sp.csr_matrix((values, (rows, cols)), shape=(len(points), len(points)))
    inside = np.flatnonzero(((points > 0) & (points < 1)).all(1))
    return whole[inside][:, inside].tocsr()


def system(n: tuple[int, int, int]) -> tuple[PETSc.Mat, PETSc.Vec]:
    """Matrix and load, this rank's slice of the rows."""
    A = stiffness(n)
    size, ranks, rank = A.shape[0], PETSc.COMM_WORLD.size, PETSc.COMM_WORLD.rank
    rows = A[size * rank // ranks : size * (rank + 1) // ranks]
    matrix = PETSc.Mat().createAIJ(
        size=((rows.shape[0], size), (rows.shape[0], size)),
        csr=(rows.indptr.astype(np.int32), rows.indices.astype(np.int32), rows.data),
        comm=PETSc.COMM_WORLD,
    )
    b = matrix.createVecLeft()
    b.set(1 / np.prod(n))  # 24 cells around a node, a quarter of each
    return matrix, b


def solved(A: PETSc.Mat, b: PETSc.Vec, name: str) -> dict[str, float]:
    """One set-up and solve: seconds, iterations, norm of the solution."""
    comm = PETSc.COMM_WORLD
    x = b.duplicate()
    ksp = PETSc.KSP().create(comm)
    ksp.setOperators(A)
    ksp.setType("cg")
    ksp.getPC().setType(PRECONDITIONERS[name])
    ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    ksp.setTolerances(rtol=1e-8, max_it=5000)
    comm.barrier()
    start = perf_counter()
    ksp.setUp()
    comm.barrier()
    middle = perf_counter()
    ksp.solve(b, x)
    comm.barrier()
    end = perf_counter()
    if ksp.getConvergedReason() <= 0:
        raise RuntimeError(f"{name}: reason {ksp.getConvergedReason()}")
    found = {
        "setup": middle - start,
        "solve": end - middle,
        "iterations": ksp.getIterationNumber(),
        "solution": x.norm(),
    }
    ksp.destroy()
    return found


def main() -> None:
    """Print one record."""
    case, given = case_of_arguments(argparse.ArgumentParser(description=__doc__))
    A, b = system(case.n)
    methods = {name: [solved(A, b, name) for _ in range(given.repeat)] for name in PRECONDITIONERS}
    record = {
        "version": ".".join(map(str, PETSc.Sys.getVersion())),
        "ranks": PETSc.COMM_WORLD.size,
        "size": A.getSize()[0],
        "norm": A.norm(PETSc.NormType.FROBENIUS),
        "methods": methods,
    }
    if PETSc.COMM_WORLD.rank == 0:
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
