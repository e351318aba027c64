"""What torch-sla makes of a `DSparseMatrix`: right answers in its group, or errors that say why.

Two replicas of two ranks each hold different matrices, so that whatever reaches for the default
group mixes them up or hangs.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_sla
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate
from torch_sla.distributed import DSparseTensor
from torch_sla.io import load_dsparse, save_dsparse

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh, init_device_mesh
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool

REPLICAS = ("tri", "mixed")  # the mesh of each replica


class Robin(tm.ElementAssembler):
    """Symmetric positive definite."""

    def forward(self, u, v, gradu, gradv, x):
        return (1.0 + x[0]) * (gradu @ gradv) + u * v


class Skew(tm.ElementAssembler):
    """Not symmetric, and complex if `s` is."""

    def forward(self, u, v, gradu, gradv, s):
        return s * (gradu @ gradv) + gradu[0] * v


def domain_of(device_mesh: DeviceMesh) -> tuple[int, DeviceMesh]:
    """Number of this rank's replica, and its ranks."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "domain"))
    return grid.get_local_rank("replica"), grid["domain"]


def sharded(device_mesh: DeviceMesh, cls: Any = Robin, **call: Any) -> Any:
    replica, domain = domain_of(device_mesh)
    dmesh = dmesh_of(mesh_of(REPLICAS[replica]), domain, "metis")
    return dmesh, tm.distributed_element_assemble(cls, dmesh, call_kwargs=call)


def serial(rank: int, cls: Any = Robin, **call: Any) -> tm.SparseMatrix:
    return cls.from_mesh(mesh_of(REPLICAS[rank // 2]))(**call)


def ramp(n: int) -> Tensor:
    return torch.sin(torch.arange(n, dtype=torch.float64)) + 1.5


# ---- solving ----


def solved(device_mesh: DeviceMesh) -> dict[str, Any]:
    dmesh, K = sharded(device_mesh)
    b = ramp(K.shape[0])
    owned = dmesh.scatter(b)
    of_vector = torch_sla.solve(K, K.scatter(b), rtol=1e-12)
    of_slice, info = torch_sla.solve(K, owned, rtol=1e-12, return_info=True)
    config = torch_sla.PreconditionerConfig(kind="jacobi")
    with torch_sla.SolverConfig(rtol=1e-12, preconditioner=config):
        of_config = torch_sla.solve(K, owned)
    own, report = K.solve(K.scatter(b), rtol=1e-12, x0=K.scatter(0 * b), return_info=True)
    return {
        "solutions": [
            of_vector.full_tensor(),
            dmesh.gather(of_slice),
            dmesh.gather(of_config),
            own.full_tensor(),
        ],
        "kinds": (type(of_vector).__name__, type(of_slice).__name__, type(own).__name__),
        "info": (info.converged, info.method),
        "report": (report.converged, report.iterations, report.residual),
        "maxiter": outcome(torch_sla.solve, K, owned, maxiter=1, return_info=True),
        "ssor": outcome(torch_sla.solve, K, owned, preconditioner="ssor"),
        "bicgstab": outcome(torch_sla.solve, K, owned, method="nonsense"),
        "gradient": gradient(dmesh, K, owned),
    }


def gradient(dmesh: tm.DistributedMesh, K: tm.DSparseMatrix, b: Tensor) -> Tensor:
    """Of the sum of the solution."""
    b = b.clone().requires_grad_()
    (grad,) = torch.autograd.grad(dmesh.sum(torch_sla.solve(K, b, rtol=1e-12)), b)
    return dmesh.gather(grad)


def test_solve_is_ours(ranks: RankPool) -> None:
    """distributed-api DSparseMatrix | `torch_sla.solve(D, b)`: right, or raises."""
    for rank, got in enumerate(ranks(4, solved)):
        K = serial(rank)
        right = torch.linalg.solve(K.to_dense(), ramp(K.shape[0]))
        for x in got["solutions"]:
            torch.testing.assert_close(x, right, rtol=1e-9, atol=1e-9)
        assert got["kinds"] == ("OwnedVector", "Tensor", "OwnedVector")
        assert got["info"] == (True, "cg")
        assert got["report"][0]
        assert got["report"][1] > 1
        assert 0 < got["report"][2] <= 1e-12
        assert got["maxiter"][0] == "NotConvergedError"
        assert got["ssor"][0] == got["bicgstab"][0] == "ValueError"
        assert "ssor" in got["ssor"][1]
        ones = torch.ones_like(right)
        torch.testing.assert_close(got["gradient"], torch.linalg.solve(K.to_dense().T, ones))


# ---- vectors ----


def vectors(device_mesh: DeviceMesh) -> dict[str, Any]:
    dmesh, K = sharded(device_mesh)
    b = ramp(K.shape[0])
    v = K.scatter(b)
    w = torch.exp(2 * v - 1) * v
    columns = K.scatter(torch.stack([b, b**2], dim=1))
    return {
        "uneven": dmesh.index_map.n_owned * 2 != dmesh.n_global_points,
        "shape": (tuple(v.shape), tuple(columns.shape)),
        "vectors": [
            v.full_tensor(),
            (-v).full_tensor(),
            w.full_tensor(),
            (K @ v).full_tensor(),
            (K @ (2 * v)).full_tensor(),
            (K.T @ v).full_tensor(),
            columns.full_tensor(),
            (K @ columns).full_tensor(),
        ],
        "scalars": [
            whole(x)
            for x in (v.mean(), torch.mean(w), w.sum(), v.norm(), torch.dot(v, w), w.max(), w.min())
        ],
        "column means": whole(columns.mean(dim=0)).tolist(),
        "refused": [
            outcome(v.redistribute, placements=[Replicate()]),
            outcome(torch.var, v),
            outcome(lambda: v[3]),
            outcome(torch.sort, v),
        ],
        "length": outcome(K.scatter, b[1:]),
    }


def whole(x: Tensor) -> Tensor:
    """A scalar or a small result, without its distribution."""
    return DTensor.full_tensor(x) if isinstance(x, DTensor) else x


def test_vectors_as_dtensors(ranks: RankPool) -> None:
    """distributed-api DSparseMatrix | `@` with `DTensor`, `scatter`: the same kind comes back."""
    found = ranks(4, vectors)
    assert any(got["uneven"] for got in found)
    for rank, got in enumerate(found):
        K = serial(rank).to_dense()
        n = K.shape[0]
        b = ramp(n)
        w, columns = torch.exp(2 * b - 1) * b, torch.stack([b, b**2], dim=1)
        assert got["shape"] == ((n,), (n, 2))
        right = [b, -b, w, K @ b, 2 * K @ b, K.T @ b, columns, K @ columns]
        for x, y in zip(got["vectors"], right, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)
        numbers = [b.mean(), w.mean(), w.sum(), b.norm(), b @ w, w.max(), w.min()]
        assert [float(x) for x in got["scalars"]] == pytest.approx([float(x) for x in numbers])
        assert got["column means"] == pytest.approx(columns.mean(dim=0).tolist())
        for refused in got["refused"]:
            assert refused[0] == "NotImplementedError", got["refused"]
            assert "full_tensor" in refused[1]
        assert got["length"][0] == "ValueError"


# ---- reductions ----


def reductions(device_mesh: DeviceMesh, scale: complex) -> dict[str, Any]:
    _, K = sharded(device_mesh, Skew, scalar_data={"s": scale})
    found = {
        "sum": K.sum(),
        "columns": K.sum(0),
        "rows": K.sum(axis=1, keepdim=True),
        "mean": K.mean(),
        "column means": K.mean(axis=0),
        "row means": K.mean(1),
        "prod": (K / K.norm()).prod(),
        "fro": K.norm(),
        "one": K.norm(1),
        "inf": K.norm(math.inf),
        "nnz": K.global_nnz(),
        "extrema": outcome(K.max) if isinstance(scale, complex) else (K.max(), K.min()),
        "wrong": [outcome(K.sum, 2), outcome(K.norm, "nuc"), outcome(K.norm, 2)],
        "full": K.full_tensor().to_dense(),
    }
    return found


@pytest.mark.parametrize("scale", [3.0, 3.0 + 1.0j])
def test_reductions_are_over_the_mesh(ranks: RankPool, scale: complex) -> None:
    """distributed-api DSparseMatrix | `sum mean prod max min norm`: over the mesh's group.

    features | reductions: distributed.
    """
    for rank, got in enumerate(ranks(4, reductions, scale)):
        S = serial(rank, Skew, scalar_data={"s": scale})
        A, stored = S.to_dense(), S.values
        pattern = torch.zeros(A.shape).index_put((S.row, S.col), torch.ones(S.values.shape))
        right = {
            "sum": A.sum(),
            "columns": A.sum(0),
            "rows": A.sum(1, keepdim=True),
            "mean": stored.mean(),
            "column means": A.sum(0) / pattern.sum(0),
            "row means": A.sum(1) / pattern.sum(1),
            "prod": (stored / A.norm()).prod(),
            "fro": torch.linalg.matrix_norm(A),
            "one": torch.linalg.matrix_norm(A, 1),
            "inf": torch.linalg.matrix_norm(A, math.inf),
            "full": A,
        }
        for name, expected in right.items():
            torch.testing.assert_close(got[name], expected, rtol=1e-12, atol=1e-13, msg=name)
        assert got["nnz"] == len(stored)
        if isinstance(scale, complex):
            assert got["extrema"][0] == "TypeError"
        else:
            assert [float(x) for x in got["extrema"]] == pytest.approx(
                [float(stored.max()), float(stored.min())]
            )
        assert [e[0] for e in got["wrong"]] == ["ValueError", "ValueError", "NotImplementedError"]


def empty_rank(device_mesh: DeviceMesh) -> list[Any]:
    dmesh = dmesh_of(mesh_of("grid"), device_mesh, NOTHING_OWNED)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    numbers = [K.sum(), K.mean(), K.max(), K.min(), K.norm(), K.norm(1), K.norm(math.inf)]
    return [*map(float, numbers), dmesh.gather(K.T @ dmesh.scatter(ramp(16))), K.values.numel()]


def test_a_rank_without_rows_reduces_too(ranks: RankPool) -> None:
    """distributed-api Ownership | a part may own no row: that works."""
    K = tm.LaplaceElementAssembler.from_mesh(mesh_of("grid"))()
    v, A = K.values, K.to_dense()
    right = [v.sum(), v.mean(), v.max(), v.min(), v.norm(), A.abs().sum(0).max()]
    found = ranks(2, empty_rank)
    assert found[1][-1] == 0
    for *numbers, product, _ in found:
        assert numbers == pytest.approx([*map(float, right), float(right[-1])], abs=1e-12)
        torch.testing.assert_close(product, A.T @ ramp(16), rtol=0, atol=1e-13)


# ---- the transpose ----


def transposed(device_mesh: DeviceMesh) -> dict[str, Any]:
    dmesh, K = sharded(device_mesh, Skew, scalar_data={"s": torch.tensor(2.0 + 1.0j)})
    b = ramp(K.shape[0]).to(torch.complex128)
    x = dmesh.scatter(b)
    y = dmesh.scatter(b.flip(0)).requires_grad_()
    (grad,) = torch.autograd.grad(dmesh.sum((K.T @ y).real), y)
    return {
        "T": dmesh.gather(K.T @ x),
        "H": dmesh.gather(K.H @ x),
        "columns": dmesh.gather(K.T @ torch.stack([x, 2 * x], dim=1)),
        "T.T": K.T.T is K,
        "shape": K.T.shape,
        "diagonal": dmesh.gather(K.T.diagonal()),
        "single": K.T.to_single().to_dense(),
        "grad": dmesh.gather(grad),
        "repr": repr(K.T),
        "length": outcome(K.T.__matmul__, torch.zeros(K.layout.n_owned + 1)),
        "adjoint": complex(dmesh.dot(y.detach(), K @ x)) - complex(dmesh.dot(K.H @ y.detach(), x)),
    }


def test_the_transpose(ranks: RankPool) -> None:
    """distributed-api DSparseMatrix | `T`: the transpose product, by the reverse halo.

    features | transposes: distributed.
    """
    for rank, got in enumerate(ranks(4, transposed)):
        K = serial(rank, Skew, scalar_data={"s": torch.tensor(2.0 + 1.0j)}).to_dense()
        b = ramp(K.shape[0]).to(torch.complex128)
        close = {"rtol": 0, "atol": 1e-12}
        torch.testing.assert_close(got["T"], K.T @ b, **close)
        torch.testing.assert_close(got["H"], K.mH @ b, **close)
        torch.testing.assert_close(got["columns"], K.T @ torch.stack([b, 2 * b], 1), **close)
        torch.testing.assert_close(got["diagonal"], K.diagonal(), **close)
        torch.testing.assert_close(got["single"], K.T, **close)
        ones = torch.ones(K.shape[0], dtype=torch.complex128)
        torch.testing.assert_close(got["grad"], K.conj() @ ones, **close)
        assert got["T.T"]
        assert got["shape"] == K.shape
        assert got["repr"].startswith("transpose of DSparseMatrix")
        assert got["length"][0] == "ValueError"
        assert abs(got["adjoint"]) < 1e-12


# ---- files ----


def files(device_mesh: DeviceMesh, folder: Path) -> dict[str, Any]:
    replica, domain = domain_of(device_mesh)
    dmesh, K = sharded(device_mesh)
    own, theirs = folder / f"own{replica}", folder / f"theirs{replica}"
    K.save(own)
    back = tm.DSparseMatrix.load(own, domain, K.partition_uuid)
    rank = domain.get_local_rank()
    save_dsparse(K, theirs, rank=rank)
    dmesh.sum(torch.ones(1))  # all have written
    plain = load_dsparse(theirs, domain.to_torch(), rank, 2)
    again = tm.DSparseMatrix(plain)
    x = dmesh.scatter(ramp(K.shape[0]))
    return {
        "dense": [A.to_single().to_dense() for A in (back, again)],
        "solution": back.layout.vectors.gather(back.solve(x, rtol=1e-12)),
        "sum": (K + back).to_single().to_dense() if K.has_same_layout(back) else None,
        "uuids": (K.partition_uuid, back.partition_uuid, again.partition_uuid),
        "missing": outcome(tm.DSparseMatrix.load, folder / "nothing", domain),
        "classes": (type(back).__name__, isinstance(plain, tm.DSparseMatrix)),
    }


def test_save_and_load(ranks: RankPool, tmp_path: Path) -> None:
    """distributed-api DSparseMatrix | torch-sla's I/O: `save_dsparse`, `load_dsparse`.

    features | SparseMatrix.save: distributed.
    """
    pytest.importorskip("safetensors")
    for rank, got in enumerate(ranks(4, files, tmp_path)):
        K = serial(rank).to_dense()
        for A in got["dense"]:
            torch.testing.assert_close(A, K, rtol=0, atol=1e-13)
        torch.testing.assert_close(got["solution"], torch.linalg.solve(K, ramp(K.shape[0])))
        torch.testing.assert_close(got["sum"], 2 * K, rtol=0, atol=1e-13)
        first, second, third = got["uuids"]
        assert first == second != third
        assert got["missing"] is not None
        assert got["classes"] == ("DSparseMatrix", False)
    alone = load_dsparse(tmp_path / "own0", target_world_size=1)
    torch.testing.assert_close(
        tm.DSparseMatrix(alone).to_single().to_dense(), serial(0).to_dense(), rtol=0, atol=1e-13
    )


# ---- the rest ----

REFUSED = {
    "det": (),
    "lu": (),
    "svd": (3,),
    "logdet": (),
    "condition_number": (),
    "eigsh": (2,),
    "connected_components": (),
    "is_symmetric": (),
    "is_hermitian": (),
    "is_positive_definite": (),
    "detect_matrix_type": (),
    "lsqr": (None,),
    "lsmr": (None,),
    "nonlinear_solve_distributed_shard": (None, None),
    "solve_batch": (None,),
    "partition_batch": (),
    "from_global_distributed": (),
}


def rest(device_mesh: DeviceMesh) -> dict[str, Any]:
    _, K = sharded(device_mesh)
    _, domain = domain_of(device_mesh)
    local = torch_sla.SparseTensor(
        K.values, K.row_indices, K.col_indices, (K.layout.n_local, K.layout.n_local)
    )
    wrapped = tm.DSparseMatrix.from_sparse_local(
        local, domain.to_torch(), K.partition, global_shape=tuple(K.shape)
    )
    return {
        "refused": {name: outcome(getattr(K, name), *args) for name, args in REFUSED.items()},
        "wrapped": (type(wrapped).__name__, wrapped.to_single().to_dense()),
        "is a": isinstance(K, DSparseTensor),
        "arithmetic": {
            name: (type(A).__name__, A.partition_uuid == K.partition_uuid, A.to_single().to_dense())
            for name, A in {
                "+": K + K.square(),
                "-": 1.0 * K - K / 2,
                "neg": -K,
                "pos": +K,
                "sqrt": K.square().sqrt(),
                "exp": (K * 0).exp(),
                "conj": K.conj(),
                "left": 3 * K,
            }.items()
        },
    }


def test_the_rest_is_refused_with_what_to_do(ranks: RankPool) -> None:
    """distributed-api DSparseMatrix | torch-sla's other functions: right, or an error."""
    for rank, got in enumerate(ranks(4, rest)):
        S = serial(rank)
        K, pattern = S.to_dense(), S.to_dense() * 0
        pattern[S.row, S.col] = 1.0
        for name, error in got["refused"].items():
            assert error is not None, name
            assert error[0] == "NotImplementedError", (name, error)
            assert name in error[1]
        assert got["wrapped"][0] == "DSparseMatrix"
        torch.testing.assert_close(got["wrapped"][1], K, rtol=0, atol=1e-13)
        assert got["is a"]
        right = {
            "+": K + K**2,
            "-": K / 2,
            "neg": -K,
            "pos": K,
            "sqrt": K.abs(),
            "exp": pattern,
            "conj": K,
            "left": 3 * K,
        }
        for name, (kind, same, dense) in got["arithmetic"].items():
            assert (kind, same) == ("DSparseMatrix", True), name
            torch.testing.assert_close(dense, right[name], rtol=1e-12, atol=1e-13, msg=name)


def one_process() -> tm.DSparseMatrix:
    return tm.distributed_element_assemble(Robin, tm.DistributedMesh(mesh_of("tri"), 2))


def test_one_process_without_a_job() -> None:
    """distributed-api DSparseMatrix | in a single process: the same functions, no group."""
    K, S = one_process(), serial(0)
    b = ramp(K.shape[0])
    right = torch.linalg.solve(S.to_dense(), b)
    torch.testing.assert_close(torch_sla.solve(K, K.scatter(b), rtol=1e-12), right)
    torch.testing.assert_close(K.T @ b, S.T @ b)
    torch.testing.assert_close(K.norm(), S.values.norm())
    torch.testing.assert_close(K.sum(0), S.to_dense().sum(0))
    assert K.global_nnz() == S.values.numel()
