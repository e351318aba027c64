"""Assembly on parts, row by row: what the other files do not show."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import (
    Load,
    Reaction,
    Transport,
    data_of,
    dmesh_of,
    labelled,
    mesh_of,
    outcome,
    recorded,
    two_fields,
)
from tests.rank_pool import RankPool

# ---- several parts in one process ----


class Threads(tm.ElementAssembler):
    """Notes the thread that it runs in, and waits there for the others."""

    def __post_init__(self, n: int) -> None:
        self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.seen: set[int] = set()
        self.all_here = threading.Barrier(n, timeout=20)

    def forward(self, u, v, gradu, gradv, a):
        if threading.get_ident() not in self.seen:
            self.seen.add(threading.get_ident())
            self.all_here.wait()
        return self.scale * (gradu @ gradv) + a * u * v


@pytest.mark.parametrize("devices", [["cpu"] * 3, None])
def test_parts_with_given_devices_run_in_threads(devices: list[str] | None) -> None:
    """distributed-api distributed_element_assemble | single process: threads, same values."""
    mesh = mesh_of("mixed")
    a = (1.0 + mesh.points[:, 0]).requires_grad_()
    dmesh = tm.DistributedMesh(mesh, 3, devices=devices)
    asm = distributed(Threads).from_mesh(dmesh, n=3 if devices else 1)
    K = asm(point_data={"a": a})
    assert len(asm.seen) == (3 if devices else 1)
    assert (threading.get_ident() in asm.seen) == (devices is None)
    own = Threads.from_mesh(mesh, n=1)
    S = own(point_data={"a": a})
    torch.testing.assert_close(K.to_single().to_dense(), S.to_dense(), rtol=0, atol=1e-13)
    found = torch.autograd.grad((K.values**3).sum(), (a, asm.scale))
    right = torch.autograd.grad((S.values**3).sum(), (a, own.scale))
    for x, y in zip(found, right, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)
    assert isinstance(asm.scale, nn.Parameter)
    with torch.no_grad():
        asm.all_here = threading.Barrier(3 if devices else 1, timeout=20)
        asm.seen.clear()
        assert not asm(point_data={"a": a}).values.requires_grad


class Checked(tm.NodeAssembler):
    def forward(self, v, x):
        raise ZeroDivisionError("always")


@pytest.mark.parametrize("devices", [["cpu"] * 4, None])
def test_an_error_carries_the_number_of_its_part(devices: list[str] | None) -> None:
    """distributed-api distributed_element_assemble | an exception names its part."""
    mesh = mesh_of("tri")
    dmesh = tm.DistributedMesh(mesh, 4, devices=devices)
    for part in range(4):
        k = torch.ones(mesh.n_elements, dtype=torch.float64)
        k[dmesh[part].cell_data["orig_cid"]["triangle"]] = float("nan")
        bad = {"element_data": {"k": k}}
        with pytest.raises(ArithmeticError, match="no coefficient") as caught:
            tm.distributed_element_assemble(Coefficient, dmesh, call_kwargs=bad)
        assert caught.value.__notes__ == [f"in part {part}"]
    with pytest.raises(ZeroDivisionError) as caught_first:
        tm.distributed_node_assemble(Checked, dmesh)
    assert caught_first.value.__notes__ == ["in part 0"]


class Coefficient(tm.ElementAssembler):
    """Refuses cells without a coefficient, which it sees in the data before integration."""

    def _data(self, point_data: Any, element_data: Any, *rest: Any) -> Any:
        if any(bool(x.isnan().any()) for x in element_data["k"].values()):
            raise ArithmeticError("no coefficient")
        return super()._data(point_data, element_data, *rest)

    def forward(self, u, v, k):
        return k * u * v


# ---- call_kwargs ----


def lengths(device_mesh: DeviceMesh) -> dict[str, Any]:
    """Global, part and owned lengths; on rank 1 they are such that two of them agree."""
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    call = data_of(mesh)
    part = dmesh.parts[0]
    n_cells = mesh.n_elements

    def with_data(**changes: Any) -> Any:
        return tm.distributed_element_assemble(Transport, dmesh, call_kwargs=call | changes)

    ids, cells = part.node_ids, part.mesh.cell_data["orig_cid"]["triangle"]
    a, k = call["point_data"]["a"], call["element_data"]["k"]["triangle"]
    right = with_data().to_single().to_dense()
    same = {
        "part": with_data(point_data={"a": a[ids]}, element_data={"k": k[cells]}),
        "owned": with_data(point_data={"a": dmesh.scatter(a)}),
        "scalar tensor": with_data(scalar_data={"s": torch.tensor(0.7, dtype=a.dtype)}),
        "by type": with_data(element_data={"k": {"triangle": k}}),
    }
    return {
        "same": {
            name: torch.allclose(K.to_single().to_dense(), right, rtol=0, atol=1e-14)
            for name, K in same.items()
        },
        "right": right,
        "wrong": [
            outcome(with_data, point_data={"a": a[:-1]}),
            outcome(with_data, element_data={"k": k[: n_cells - 1]}),
            outcome(with_data, point_data={"a": a.repeat(2)}),
            outcome(with_data, nonsense=1),
        ],
        "mixed forms": outcome(with_data, point_data={"a": a if dmesh.parts[0].number else a[ids]}),
    }


def test_call_kwargs_are_sliced(ranks: RankPool) -> None:
    """distributed-api per-rank assembly | `call_kwargs`: the right slice, or `ValueError`."""
    mesh = mesh_of("tri")
    K = Transport.from_mesh(mesh)(**data_of(mesh)).to_dense()
    for got in ranks(3, lengths):
        assert all(got["same"].values()), got["same"]
        torch.testing.assert_close(got["right"], K, rtol=0, atol=1e-13)
        assert [e[0] for e in got["wrong"]] == ["ValueError"] * 3 + ["TypeError"]
        assert "point_data['a'] has length" in got["wrong"][0][1]
        assert "(global)" in got["wrong"][0][1]
        assert got["mixed forms"][0] == "ValueError"
        assert "different forms" in got["mixed forms"][1]


def ambiguous(device_mesh: DeviceMesh) -> tuple[list[int], Tensor]:
    """One rank with everything: global, part and owned have one length and mean the same."""
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=data_of(mesh))
    part = dmesh.parts[0]
    return [mesh.n_points, part.mesh.n_points, dmesh.index_map.n_owned], K.to_single().to_dense()


def test_lengths_that_agree_mean_the_same(ranks: RankPool) -> None:
    """distributed-api per-rank assembly | `call_kwargs`: equal lengths are the same data."""
    mesh = mesh_of("tri")
    ((sizes, K),) = ranks(1, ambiguous)
    assert len(set(sizes)) == 1
    right = Transport.from_mesh(mesh)(**data_of(mesh)).to_dense()
    torch.testing.assert_close(K, right, rtol=0, atol=1e-13)


def truly_ambiguous(device_mesh: DeviceMesh) -> dict[str, Any]:
    """Rank 0 owns three points without cells, and three nodes of its part are rank 1's."""
    grid = tm.Mesh.gen_rectangle(n=(2, 2))
    extra = torch.tensor([[5.0, 5.0], [6.0, 5.0], [7.0, 5.0]], dtype=grid.dtype)
    mesh = tm.Mesh.from_arrays(
        torch.cat([grid.points, extra]), {"triangle": grid.cells["triangle"]}
    )
    left = (grid.points[grid.cells["triangle"]].mean(1)[:, 0] < 0.5).long()
    with labelled((1 - left).tolist()):
        dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh, ownership="balanced")
    part = dmesh.parts[0]
    given = mesh.points[part.node_ids, 0]

    def load(a: Tensor) -> Tensor:
        return tm.distributed_node_assemble(Weighted, dmesh, point_data={"a": a})

    return {
        "sizes": (part.mesh.n_points, dmesh.index_map.n_owned),
        "part": outcome(load, given),
        "global": dmesh.gather(load(mesh.points[:, 0])),
    }


class Weighted(tm.NodeAssembler):
    def forward(self, v, a):
        return a * v


def test_ambiguous_lengths_are_refused(ranks: RankPool) -> None:
    """distributed-api per-rank assembly | `call_kwargs`: ambiguous length, `ValueError`."""
    found = ranks(2, truly_ambiguous)
    grid = tm.Mesh.gen_rectangle(n=(2, 2))
    right = Weighted.from_mesh(grid)(point_data={"a": grid.points[:, 0]})
    for got in found:
        assert got["sizes"] == (6, 6)
        torch.testing.assert_close(got["global"][:9], right, rtol=0, atol=1e-14)
        assert got["part"][0] == "ValueError"
        assert "ambiguous" in got["part"][1]


# ---- vectors ----


def vector_rows(device_mesh: DeviceMesh | None) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    call = {"point_data": two_fields(mesh)["point_data"]}
    K = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=call)
    b = tm.distributed_node_assemble(Load, dmesh, call_kwargs=data_of(mesh))
    split = data_of(mesh)
    given = split.pop("point_data")
    same = tm.distributed_node_assemble(Load, dmesh, point_data=given, call_kwargs=split)
    x = torch.arange(float(mesh.n_points), dtype=torch.float64)
    owned = dmesh.scatter(x)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    return {
        "block": (tuple(K.shape), K.row_indices.max() < K.layout.n_owned),
        "b": dmesh.gather(b),
        "same": torch.equal(b, same),
        "length": b.shape[0] == dmesh.index_map.n_owned,
        "solution": dmesh.gather(M.solve(b, rtol=1e-12)),
        "round trip": dmesh.gather(owned),
        "numbers": [
            float(v)
            for v in (dmesh.dot(owned, b), dmesh.norm(owned), dmesh.sum(b), dmesh.mean(owned))
        ],
    }


@pytest.mark.parametrize("n", [0, 1, 3])
def test_vectors(ranks: RankPool, n: int) -> None:
    """distributed-api distributed_node_assemble | owned slice; gather, scatter, dot, norm."""
    mesh = mesh_of("tri")
    f = Load.from_mesh(mesh)(**data_of(mesh))
    M = tm.MassElementAssembler.from_mesh(mesh)().to_dense()
    x = torch.arange(float(mesh.n_points), dtype=torch.float64)
    for got in ranks(n, vector_rows) if n else [vector_rows(None)]:
        assert got["block"][0] == (2 * mesh.n_points, 2 * mesh.n_points)
        assert got["block"][1]
        torch.testing.assert_close(got["b"], f, rtol=0, atol=1e-14)
        assert got["same"]
        assert got["length"]
        torch.testing.assert_close(got["solution"], torch.linalg.solve(M, f), rtol=1e-8, atol=1e-8)
        assert torch.equal(got["round trip"], x)
        right = [float(x @ f), float(x.norm()), float(f.sum()), float(x.mean())]
        assert got["numbers"] == pytest.approx(right)


# ---- entry points ----


def per_rank(device_mesh: DeviceMesh) -> dict[str, Any]:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    rank = device_mesh.get_local_rank()
    K = tm.distributed_element_assemble_per_rank(
        tm.LinearElasticityElementAssembler, dmesh, rank, 2, "reduce", None, E=2.0, nu=0.3
    )
    again = tm.distributed_element_assemble(
        tm.LinearElasticityElementAssembler, dmesh, E=2.0, nu=0.3
    )
    single = tm.distributed_element_assemble_to_sparse(
        tm.LinearElasticityElementAssembler, dmesh, E=2.0, nu=0.3
    )
    twice = torch.stack([single.row, single.col], 1)
    asm = distributed(tm.MassElementAssembler).from_mesh(dmesh)
    asm()
    with recorded() as messages:
        asm()
    sent = [m for m in messages if m.dtype.is_floating_point]
    return {
        "class": type(K).__name__,
        "same": torch.equal(K.values, again.values),
        "signature": K.layout_signature == again.layout_signature,
        "K": single.to_dense(),
        "entries": (len(twice), len(torch.unique(twice, dim=0))),
        "wrong rank": outcome(
            tm.distributed_element_assemble_per_rank,
            tm.MassElementAssembler,
            dmesh,
            (rank + 1) % 3,
        ),
        "exchanges": [m.dtype for m in sent],
    }


def test_the_per_rank_path(ranks: RankPool) -> None:
    """distributed-api per-rank assembly | lockstep; `ValueError` for another rank."""
    mesh = mesh_of("tri")
    S = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=2.0, nu=0.3)()
    for got in ranks(3, per_rank):
        assert got["class"] == "DSparseMatrix"
        assert got["same"]
        assert got["signature"]
        torch.testing.assert_close(got["K"], S.to_dense(), rtol=0, atol=1e-13)
        assert got["entries"] == (S.values.numel(),) * 2
        assert got["wrong rank"][0] == "ValueError"
        assert "rank = " in got["wrong rank"][1]
        assert got["exchanges"] == [torch.float64]  # values only: the symbolic phase is kept


def test_without_a_job_the_per_rank_path_says_what_to_call() -> None:
    """distributed-api per-rank assembly | not initialised: `RuntimeError` that says so."""
    dmesh = tm.DistributedMesh(mesh_of("tri"), 2)
    with pytest.raises(RuntimeError, match="init_process_group"):
        tm.distributed_element_assemble_per_rank(tm.MassElementAssembler, dmesh, 0)


def test_to_sparse_adds_to_a_serial_matrix() -> None:
    """distributed-api distributed_element_assemble_to_sparse | a `SparseMatrix`.

    known-faults | 27: one entry a position, symmetric if K is, adds to a serial matrix.
    """
    mesh = mesh_of("mixed")
    M = tm.MassElementAssembler.from_mesh(mesh)()
    dmesh = tm.DistributedMesh(mesh, 3)
    K = tm.distributed_element_assemble_to_sparse(tm.LaplaceElementAssembler, dmesh)
    assert type(K) is tm.SparseMatrix
    S = tm.LaplaceElementAssembler.from_mesh(mesh)()
    torch.testing.assert_close((K + M).to_dense(), (S + M).to_dense(), rtol=0, atol=1e-13)
    assert torch.equal(K.row * mesh.n_points + K.col, S.row * mesh.n_points + S.col)
    torch.testing.assert_close(K.to_dense(), K.to_dense().T, rtol=0, atol=1e-13)
