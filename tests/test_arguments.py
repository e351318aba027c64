"""Counts, orders and tolerances of another type or size: errors that name them and show the value.

Those of `solve`, serial and sharded, are in tests/distributed/test_same_options.py.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh import dataset, element
from tensormesh.distributed import Multilevel
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool

f64 = torch.float64
COUNTS = ["3", 2.5, 2.0, True, -1]
NUMBERS = ["1e-3", 1e-3j, True, float("nan")]


@cache
def system() -> tuple[tm.Mesh, tm.SparseMatrix, tm.SparseMatrix, Tensor]:
    mesh = tm.Mesh.gen_rectangle(n=(2, 2))
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    M = tm.MassElementAssembler.from_mesh(mesh)()
    return mesh, K, M, torch.ones(mesh.n_points, dtype=f64)


def square(**options: Any) -> tm.Mesh:
    return tm.Mesh.gen_rectangle(**{"chara_length": 0.5} | options)


def newton(**options: Any) -> Any:
    _, _, M, b = system()
    return tm.newton(lambda u: M @ u - b, lambda u: M, 0 * b, **options)


def nonlinear(**options: Any) -> Any:
    _, _, M, b = system()
    return M.nonlinear_solve(lambda u, A: A @ u - b, 0 * b, jac_fn=lambda u, A: A, **options)


def of_matrix(name: str) -> Callable[..., Any]:
    _, _, M, b = system()
    return {
        "eigsh": M.eigsh,
        "batch": lambda **options: M.solve_batch(M.values, b, **options),
        "scipy": lambda **options: M.solve(b, "scipy", "cg", **options),
        "raised": system()[0].raised,
        "theta": lambda dt=0.1, **options: tm.time.ThetaMethod(M, M, dt, **options),
        "newmark": lambda dt=0.1, **options: tm.time.Newmark(M, M, dt, **options),
        "alpha": lambda dt=0.1, **options: tm.time.GeneralizedAlpha(M, M, dt, **options),
        "mass": lambda **options: tm.MassElementAssembler.from_mesh(system()[0], **options),
        "batches": lambda **options: tm.MassElementAssembler.from_mesh(system()[0])(**options),
        "parts": lambda **options: tm.DistributedMesh(system()[0], **options),
    }[name]


OF_COUNTS: list[tuple[Callable[..., Any], str]] = [
    (lambda **o: of_matrix("eigsh")(**o), "k"),
    (lambda **o: of_matrix("batch")(method="cg", **o), "maxiter"),
    (lambda **o: of_matrix("scipy")(**o), "maxiter"),
    (newton, "max_iter"),
    (nonlinear, "max_iter"),
    (lambda **o: of_matrix("raised")(**o), "order"),
    (square, "order"),
    (square, "n"),
    (lambda n: square(n=(n, 2)), "n"),
    (lambda **o: dataset.gen_cube(0.5, **o), "order"),
    (lambda **o: dataset.gen_L(0.5, **o), "order"),
    (lambda **o: dataset.gen_hollow_rectangle(0.5, **o), "order"),
    (lambda **o: tm.MeshGen(**o), "order"),
    (lambda **o: of_matrix("mass")(**o), "quadrature_order"),
    (lambda **o: of_matrix("parts")(**o), "num_partitions"),
    (lambda **o: tm.Transformation(torch.eye(3)[:, :2], torch.arange(3)[None], "triangle", **o),
     "quadrature_order"),
    (lambda **o: element.quadrature("triangle", **o), "degree"),
    (lambda **o: element.facet_quadrature("triangle", degree=2, **o), "facet"),
    (lambda **o: element.cell_name("triangle", **o), "order"),
    (lambda **o: tm.Triangle.get_basis(**o), "order"),
    (lambda **o: tm.BlockLayout({"u": tm.Field("v", **o)}), "components"),
    (lambda **o: tm.BlockLayout({"u": tm.Field("v", **o)}), "order"),
    (tm.SparseMatrix.eye, "n"),
    (lambda **o: tm.SparseMatrix.full(n=2, **o), "m"),
    (lambda **o: tm.SparseMatrix.random(m=2, **o), "n"),
    (lambda **o: tm.voigt_stiffness(1.0, 0.3, **o), "dim"),
]  # fmt: skip
OF_NUMBERS: list[tuple[Callable[..., Any], str]] = [
    (lambda **o: of_matrix("batch")(method="cg", **o), "tol"),
    (lambda **o: of_matrix("scipy")(**o), "atol"),
    (lambda **o: of_matrix("eigsh")(2, **o), "sigma"),
    (newton, "rtol"),
    (newton, "atol"),
    (nonlinear, "atol"),
    (square, "chara_length"),
    (square, "left"),
    (lambda **o: dataset.gen_L(**o), "chara_length"),
    (lambda **o: tm.MeshGen(**o), "chara_length"),
    (lambda **o: of_matrix("theta")(**o), "dt"),
    (lambda **o: of_matrix("theta")(**o), "theta"),
    (lambda **o: of_matrix("newmark")(**o), "beta"),
    (lambda **o: of_matrix("newmark")(**o), "gamma"),
    (lambda **o: of_matrix("alpha")(**o), "rho"),
    (lambda **o: tm.SparseMatrix.random(2, 2, **o), "density"),
    (lambda **o: tm.functional.lame(nu=0.3, **o), "E"),
    (lambda **o: tm.functional.lame(E=1.0, **o), "nu"),
]


def check(call: Callable[..., Any], name: str, value: Any) -> None:
    found = outcome(call, **{name: value})
    assert found is not None, (name, value)
    assert found[0] in ("TypeError", "ValueError", "KeyError"), found
    assert name in found[1]
    assert repr(value) in found[1]


@pytest.mark.parametrize("value", COUNTS, ids=repr)
@pytest.mark.parametrize(("call", "name"), OF_COUNTS, ids=lambda x: x if isinstance(x, str) else "")
def test_counts_and_orders(call: Callable[..., Any], name: str, value: Any) -> None:
    check(call, name, value)


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize(
    ("call", "name"), OF_NUMBERS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_numbers(call: Callable[..., Any], name: str, value: Any) -> None:
    check(call, name, value)


SHARDED = {
    "k": COUNTS,
    "maxiter": COUNTS,
    "rtol": NUMBERS,
    "degree": COUNTS,
    "max_coarse": COUNTS,
    "theta": NUMBERS,
}


def on_ranks(device_mesh: DeviceMesh) -> dict[str, list[Any]]:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    found: dict[str, list[Any]] = {}
    for name, values in SHARDED.items():
        for value in values:
            call: Any = M.eigsh if name in ("k", "maxiter", "rtol") else Multilevel
            options = {"which": "SA"} if call == M.eigsh else {"A": M}
            found.setdefault(name, []).append(outcome(call, **options | {name: value}))
    return found


def test_on_ranks(ranks: RankPool) -> None:
    for found in ranks(2, on_ranks):
        for name, values in SHARDED.items():
            for value, error in zip(values, found[name], strict=True):
                assert error is not None, (name, value)
                assert error[0] in ("TypeError", "ValueError")
                assert name in error[1]
                assert repr(value) in error[1]
