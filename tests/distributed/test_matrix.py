"""`DSparseMatrix`: products, arithmetic, identity, and what torch-sla sees of it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch_sla import SparseTensor
from torch_sla.distributed import DSparseTensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import (
    NOTHING_OWNED,
    Message,
    Reaction,
    Transport,
    data_of,
    dmesh_of,
    mesh_of,
    outcome,
    recorded,
    two_fields,
)
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]


def serial_reaction() -> tm.SparseMatrix:
    mesh = mesh_of("mixed")
    return Reaction.from_mesh(mesh)(**two_fields(mesh))


def reaction(device_mesh: DeviceMesh | None) -> tuple[tm.DistributedMesh, tm.DSparseMatrix]:
    mesh = mesh_of("mixed")
    dmesh = dmesh_of(mesh, device_mesh, "metis")
    K = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=two_fields(mesh))
    return dmesh, K


def vector(n: int, *columns: int) -> Tensor:
    return torch.sin(torch.arange(float(n * max(1, *columns, 1)), dtype=torch.float64)).reshape(
        n, *columns
    )


# ---- products ----


def products(device_mesh: DeviceMesh) -> dict[str, Tensor]:
    dmesh, K = reaction(device_mesh)
    n = K.shape[0]
    x, columns = vector(n), vector(n, 3)
    owned = dmesh.scatter(x)
    local = K.layout.with_ghosts(owned)
    torch_mesh = K.layout.torch_mesh
    plain = DTensor.from_local(
        owned, torch_mesh, [Shard(0)], run_check=False, shape=(n,), stride=(1,)
    )
    of_local, of_plain, of_tagged = K @ local, K @ plain, K @ K.scatter(x)
    assert isinstance(of_plain, DTensor)
    assert of_plain.shape == (n,)
    assert of_tagged.to_local().shape == owned.shape
    found = {
        "owned": K @ owned,
        "one column": (K @ owned.unsqueeze(1)).squeeze(1),
        "local": of_local[: len(owned)],
        "plain": of_plain.to_local(),
        "tagged": of_tagged.to_local(),
        "with gradient": (K @ owned.clone().requires_grad_()).detach(),
        "complex": (K @ (1j * owned)).imag,
        "single": (K.float() @ owned.float()).double(),
    }
    found = {name: dmesh.gather(y) for name, y in found.items()}
    found["ghosts too"] = torch.zeros(n, dtype=x.dtype).index_put(
        (K.partition.local_to_global,), of_local
    )
    found["columns"] = dmesh.gather(K @ dmesh.scatter(columns))
    ghost_rows = K.partition.halo_nodes
    found["seen"] = torch.cat([K.partition.owned_nodes, ghost_rows])
    return found


@pytest.mark.parametrize("n", SIZES)
def test_a_product_takes_and_gives_every_kind_of_vector(ranks: RankPool, n: int) -> None:
    """distributed-api DSparseMatrix | `@`: owned slice, local vector, columns or `DTensor`.

    features | products with vectors and columns: distributed.
    """
    K = serial_reaction()
    right = K @ vector(K.shape[0])
    for got in ranks(n, products):
        columns, seen = got.pop("columns"), got.pop("seen")
        torch.testing.assert_close(columns, K @ vector(K.shape[0], 3), rtol=0, atol=1e-13)
        torch.testing.assert_close(got.pop("ghosts too")[seen], right[seen], rtol=0, atol=1e-13)
        torch.testing.assert_close(got.pop("single"), right, rtol=0, atol=1e-5)
        for name, y in got.items():
            torch.testing.assert_close(y, right, rtol=0, atol=1e-13, msg=name)


def islands(device_mesh: DeviceMesh) -> bool:
    """Ranks 0 and 1 share a square, rank 2 has another one, and no ghosts."""
    one = tm.Mesh.gen_rectangle(n=(2, 2))
    cells = one.cells["triangle"]
    mesh = tm.Mesh.from_arrays(
        torch.cat([one.points, one.points + 2.0]), {"triangle": torch.cat([cells, cells + 9])}
    )
    dmesh = dmesh_of(mesh, device_mesh, [0] * 4 + [1] * 4 + [2] * 8)
    K = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    x = vector(18)
    local = K.layout.with_ghosts(dmesh.scatter(x))
    y, z = K @ local, K @ dmesh.scatter(x)
    serial = tm.MassElementAssembler.from_mesh(mesh)() @ x
    return torch.allclose(y, serial[K.partition.local_to_global]) and torch.allclose(
        dmesh.gather(z), serial
    )


def test_local_vectors_where_only_some_ranks_have_ghosts(ranks: RankPool) -> None:
    assert ranks(3, islands) == [True] * 3


def messages_of_a_product(device_mesh: DeviceMesh) -> list[list[Message]]:
    dmesh, K = reaction(device_mesh)
    x = dmesh.scatter(vector(K.shape[0]))
    found = []
    for y in (x, x.clone().requires_grad_(), x.unsqueeze(1).expand(-1, 2)):
        K @ y  # makes what is made once
        with recorded() as messages:
            K @ y
        found.append(messages)
    return found


@pytest.mark.parametrize("n", [2, 3])
def test_a_product_is_one_exchange(ranks: RankPool, n: int) -> None:
    for kinds in ranks(n, messages_of_a_product):
        for messages in kinds:
            assert [m.name for m in messages] == ["all_to_all_single"]


def wrong_vectors(device_mesh: DeviceMesh) -> list[Any]:
    _, K = reaction(device_mesh)
    return [
        outcome(K.__matmul__, torch.zeros(K.layout.n_local + 1)),
        outcome(K.__matmul__, torch.zeros(K.layout.n_owned, 2, 2)),
    ]


def test_a_vector_of_another_length_is_refused(ranks: RankPool) -> None:
    for errors in ranks(2, wrong_vectors):
        for name, text in errors:
            assert name == "ValueError"
            assert "x has " in text


# ---- arithmetic and identity ----


def arithmetic(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    T = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=data_of(mesh))
    results = {
        "K + M": K + M,
        "K - 2 M": K - 2 * M,
        "M / 2": M / 2,
        "M * K": M * K,
        "-K": -K,
        "M + T": M + T,
        "abs": abs(K),
        "torch-sla's abs": K.abs(),
        "square": K.square(),
        "float": K.float().double(),
        "detach": K.detach(),
        "clone": K.clone(),
        "cpu": K.cpu(),
        "to": K.to(torch.float64),
    }
    again = dmesh_of(mesh, device_mesh)
    other = tm.distributed_element_assemble(tm.MassElementAssembler, again)
    blocks = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    return {
        "dense": {name: A.to_single().to_dense() for name, A in results.items()},
        "classes": {type(A).__name__ for A in results.values()},
        "is a": all(isinstance(A, DSparseTensor) for A in results.values()),
        "uuids": {A.partition_uuid for A in results.values()} == {dmesh.partition_uuid},
        "signatures": len({A.layout_signature for A in results.values()}),
        "float": K.float().values.dtype,
        "cuda": outcome(K.cuda),
        "same pattern": K.layout.pattern.same_as(other.layout.pattern),
        "other signature": K.layout_signature == other.layout_signature,
        "other": outcome(lambda: K + other),
        "blocks": outcome(lambda: K + blocks),
        "text": outcome(lambda: K + "M"),
        "repr": repr(K),
    }


@pytest.mark.parametrize("n", [1, 3])
def test_arithmetic_keeps_class_and_identity(ranks: RankPool, n: int) -> None:
    """distributed-api DSparseMatrix | `layout_signature`: of one mesh, of two builds.
    distributed-api DSparseMatrix | `+ - * neg`, `to`, `cpu`, `double`, `float`: same UUID.
    known-faults | 26: K + M of one `DistributedMesh` works.

    features | sums of matrices: distributed.
    """
    mesh = mesh_of("tri")
    K = tm.LaplaceElementAssembler.from_mesh(mesh)().to_dense()
    M = tm.MassElementAssembler.from_mesh(mesh)().to_dense()
    T = Transport.from_mesh(mesh)(**data_of(mesh)).to_dense()
    right = {
        "K + M": K + M,
        "K - 2 M": K - 2 * M,
        "M / 2": M / 2,
        "M * K": M * K,
        "-K": -K,
        "M + T": M + T,
        "abs": K.abs(),
        "torch-sla's abs": K.abs(),
        "square": K**2,
    }
    for rank, got in enumerate(ranks(n, arithmetic)):
        for name, A in got["dense"].items():
            tolerance = 1e-5 if name == "float" else 1e-13
            torch.testing.assert_close(A, right.get(name, K), rtol=0, atol=tolerance, msg=name)
        assert got["classes"] == {"DSparseMatrix"}
        assert got["is a"]
        assert got["uuids"]
        assert got["signatures"] == 1
        assert got["float"] == torch.float32
        assert got["cuda"][0] == "ValueError"
        assert got["same pattern"]
        assert not got["other signature"]
        assert got["other"][0] == got["blocks"][0] == "ValueError"
        assert "different partitions" in got["other"][1]
        assert got["text"][0] == "TypeError"
        assert f"rank {rank} of {n}" in got["repr"]


# ---- torch-sla's view ----


def partition_facts(device_mesh: DeviceMesh, cut: str | list[int]) -> dict[str, Any]:
    dmesh = dmesh_of(mesh_of("grid"), device_mesh, cut)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    p = K.partition
    return {
        "id": p.partition_id,
        "owned": p.owned_nodes,
        "halo": p.halo_nodes,
        "local": p.local_to_global,
        "local_nodes": p.local_nodes,
        "neighbours": list(p.neighbor_partitions),
        "send": dict(p.send_indices),
        "recv": dict(p.recv_indices),
        "coo": (K.row_indices, K.col_indices, K.values),
        "shape": tuple(K.shape),
    }


@pytest.mark.parametrize("cut", ["coordinate", "metis", [i % 3 for i in range(18)]])
def test_the_partition_is_consistent_across_ranks(ranks: RankPool, cut: str | list[int]) -> None:
    """distributed-api DSparseMatrix | `partition`, `row_indices`, `col_indices`: ranks agree."""
    n = tm.Mesh.gen_rectangle(n=(3, 3)).n_points * 2
    found = ranks(3, partition_facts, cut)
    owned = torch.cat([p["owned"] for p in found])
    assert torch.equal(owned.sort().values, torch.arange(n))
    dense = torch.zeros(n, n, dtype=torch.float64)
    for rank, p in enumerate(found):
        assert p["id"] == rank
        assert p["shape"] == (n, n)
        assert torch.equal(p["local"], torch.cat([p["owned"], p["halo"]]))
        assert torch.equal(p["local"], p["local_nodes"])
        assert set(p["neighbours"]) == set(p["send"]) == set(p["recv"])
        received = torch.cat([p["halo"][:0], *p["recv"].values()])
        assert torch.equal(received.sort().values, torch.arange(len(p["owned"]), len(p["local"])))
        for r in p["neighbours"]:
            there = found[r]
            # What rank r sends here is what is received from it here.
            sent = there["local"][there["send"][rank]]
            assert torch.equal(sent, p["local"][p["recv"][r]])
            assert set(sent.tolist()) <= set(there["owned"].tolist())
        row, col, values = p["coo"]
        assert bool((row < len(p["owned"])).all())
        dense[p["local"][row], p["local"][col]] += values
    serial = tm.LinearElasticityElementAssembler.from_mesh(mesh_of("grid"))().to_dense()
    torch.testing.assert_close(dense, serial, rtol=0, atol=1e-13)


def as_torch_sla(device_mesh: DeviceMesh) -> dict[str, Any]:
    """torch-sla's own collectives work on the world's group, so all four ranks take part."""
    _, K = reaction(device_mesh)
    x = vector(K.shape[0])
    y = K @ K.scatter(x)
    return {
        "full": K.full_tensor().to_dense(),
        "product": y.full_tensor(),
        "global nnz": K.global_nnz(),
        "norm": float(K.norm()),
    }


def test_what_torch_sla_computes_of_it(ranks: RankPool) -> None:
    """features | DSparseMatrix: distributed."""
    K = serial_reaction()
    for got in ranks(4, as_torch_sla):
        torch.testing.assert_close(got["full"], K.to_dense(), rtol=0, atol=1e-13)
        torch.testing.assert_close(got["product"], K @ vector(K.shape[0]), rtol=0, atol=1e-13)
        assert got["global nnz"] == K.values.numel()
        assert got["norm"] == pytest.approx(float(K.values.norm()), rel=1e-13)


def wrapped(device_mesh: DeviceMesh, uuid: int | None) -> dict[str, Any]:
    """Matrices that torch-sla made: cut by itself, or from our own local rows."""
    S = serial_reaction()
    global_tensor = SparseTensor(S.values, S.row, S.col, S.shape)
    torch_mesh = device_mesh.to_torch()
    cut = DSparseTensor.partition(global_tensor, torch_mesh, partition_method="metis")
    _, K = reaction(device_mesh)
    n = K.layout.n_local
    local = SparseTensor(K.values, K.row_indices, K.col_indices, (n, n))
    given = DSparseTensor.from_sparse_local(
        local, torch_mesh, K.partition, global_shape=tuple(K.shape)
    )
    found: dict[str, Any] = {"dense": [], "uuids": [], "products": [], "residuals": []}
    x = vector(S.shape[0])
    for plain in (cut, given, K):
        A = tm.DSparseMatrix(plain, uuid)
        vectors = A.layout.vectors
        found["dense"].append(A.to_single().to_dense())
        found["uuids"].append(A.partition_uuid)
        found["products"].append(vectors.gather(A @ vectors.scatter(x)))
    found["own uuid"] = K.partition_uuid
    found["replicated"] = outcome(tm.DSparseMatrix, global_tensor)
    return found


@pytest.mark.parametrize("uuid", [None, 7])
def test_a_tensor_of_torch_sla_can_be_wrapped(ranks: RankPool, uuid: int | None) -> None:
    """distributed-api DSparseMatrix | `partition_uuid=`: drawn on rank 0, or given; kept."""
    S = serial_reaction()
    found = ranks(4, wrapped, uuid)
    for got in found:
        for A, y in zip(got["dense"], got["products"], strict=True):
            torch.testing.assert_close(A, S.to_dense(), rtol=0, atol=1e-13)
            torch.testing.assert_close(y, S @ vector(S.shape[0]), rtol=0, atol=1e-13)
        assert got["uuids"] == found[0]["uuids"]
        assert got["replicated"][0] == "TypeError"
        if uuid is None:
            assert got["uuids"][2] == got["own uuid"]
            assert len(set(got["uuids"])) == 3
        else:
            assert got["uuids"] == [7, 7, 7]


# ---- the rest ----


def diagonals(device_mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh, NOTHING_OWNED)
    a = torch.ones(mesh.n_points, dtype=torch.float64, requires_grad=True)
    call = data_of(mesh) | {"point_data": {"a": a}}
    d = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=call).diagonal()
    (grad,) = torch.autograd.grad(dmesh.sum(d**2), a)
    return dmesh.gather(d.detach()), grad


def test_the_diagonal_and_its_gradient_with_a_rank_that_owns_nothing(ranks: RankPool) -> None:
    """distributed-api DSparseMatrix | `diagonal()`: owned slice, differentiable.

    features | diagonal: distributed, differentiable.
    """
    mesh = mesh_of("grid")
    a = torch.ones(mesh.n_points, dtype=torch.float64, requires_grad=True)
    d = Transport.from_mesh(mesh)(**data_of(mesh) | {"point_data": {"a": a}}).diagonal()
    (grad,) = torch.autograd.grad((d**2).sum(), a)
    for diagonal, of_a in ranks(2, diagonals):
        torch.testing.assert_close(diagonal, d.detach(), rtol=0, atol=1e-14)
        torch.testing.assert_close(of_a, grad, rtol=0, atol=1e-13)


def test_one_process_holds_the_whole_matrix() -> None:
    """features | DSparseMatrix: serial."""
    dmesh, K = reaction(None)
    S = serial_reaction()
    assert isinstance(K, tm.DSparseMatrix)
    assert K.layout.n_local == K.layout.n_owned == S.shape[0]
    assert torch.equal(K.to_single().row, S.row)
    torch.testing.assert_close(K @ vector(S.shape[0]), S @ vector(S.shape[0]))
    assert dmesh.num_partitions == 2
