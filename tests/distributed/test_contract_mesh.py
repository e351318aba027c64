"""`DistributedMesh`, row by row: what the other files do not show."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.ownership import node_owners
from tensormesh.errors import NotConvergedError
from tensormesh.mesh.partition import fiedler, partition_cells
from tests.distributed.cases import (
    METHODS,
    Transport,
    data_of,
    dmesh_of,
    labelled,
    mesh_of,
    outcome,
)
from tests.rank_pool import RankPool

# ---- arguments and attributes ----


def attributes(device_mesh: DeviceMesh | None) -> dict[str, Any]:
    mesh = mesh_of("mixed")
    dmesh = tm.DistributedMesh(mesh, None, "metis", None, device_mesh=device_mesh)
    return {
        "numbers": (dmesh.num_partitions, len(dmesh), dmesh.n_global_points, dmesh.method),
        "devices": [str(device) for device in dmesh.devices],
        "submeshes": [type(part).__name__ for part in dmesh.submeshes],
        "indexing": [
            dmesh[i].points.equal(dmesh.submeshes[i].points) for i in range(-1, len(dmesh))
        ],
        "ids": [part.point_data["orig_nid"] for part in dmesh],
        "repr": repr(dmesh),
    }


@pytest.mark.parametrize("n", [0, 3])
def test_attributes(ranks: RankPool, n: int) -> None:
    """distributed-api DistributedMesh | attributes: numbers, devices, parts, `len`, `repr`."""
    mesh = mesh_of("mixed")
    for got in ranks(n, attributes) if n else [attributes(None)]:
        size = n or torch.cuda.device_count() or 2
        assert got["numbers"] == (size, size, mesh.n_points, "metis")
        assert got["devices"] == ["cpu"] * size
        assert got["submeshes"] == ["Mesh"] * size
        assert all(got["indexing"])
        assert all(ids.dtype == torch.int64 for ids in got["ids"])
        assert f"{mesh.n_points} points" in got["repr"]
        assert f"{size} parts by 'metis'" in got["repr"]


def test_lower_cells_and_data_follow_their_cells() -> None:
    """distributed-api DistributedMesh | parts: groups, point data and cell data follow."""
    mesh = tm.Mesh.gen_rectangle(n=(6, 6))
    mesh.register_point_data("height", mesh.points[:, 0] + 2 * mesh.points[:, 1])
    centre = mesh.points[mesh.cells["triangle"]].mean(1)
    mesh.register_element_data("centre", {"triangle": centre, **lines_of(mesh)})
    dmesh = tm.DistributedMesh(mesh, 3)
    for part in dmesh:
        x = part.points
        assert torch.equal(part.point_data["height"], x[:, 0] + 2 * x[:, 1])
        found = part.cell_data["centre"]["triangle"]
        assert torch.equal(found, x[part.cells["triangle"]].mean(1))
    length = sum(
        float(tm.distributed_node_assemble(Length, dmesh, boundary_mask=side).sum())
        for side in ("left", "right", "top", "bottom")
    )
    assert length == pytest.approx(4.0)


def lines_of(mesh: tm.Mesh) -> dict[str, Tensor]:
    """Values on the cells that are no triangles, of which a grid may have some."""
    return {k: torch.zeros(len(c), 2) for k, c in mesh.cells.items() if k != "triangle"}


class Length(tm.FacetAssembler):
    def forward(self, v):
        return v


# ---- quality ----


@pytest.mark.parametrize("n_parts", [3, 5, 7])
def test_parts_are_even_never_empty_and_the_same_each_time(n_parts: int) -> None:
    """distributed-api DistributedMesh | quality: within 3 %, none empty, deterministic."""
    mesh = tm.Mesh.gen_cube(n=(11, 11, 11))
    for method in ("coordinate", "metis"):
        first, again = (tm.DistributedMesh(mesh, n_parts, method) for _ in range(2))
        cells = first.quality().cells.double()
        assert float((cells / cells.mean() - 1).abs().max()) <= 0.03
        for a, b in zip(first, again, strict=True):
            assert torch.equal(a.point_data["orig_nid"], b.point_data["orig_nid"])
            assert torch.equal(a.cells["tetra"], b.cells["tetra"])


def test_no_method_falls_back_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """distributed-api DistributedMesh | no silent fallback: an error that says what to do."""
    mesh = tm.Mesh.gen_rectangle(n=(40, 40))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pymetis", None)
        with pytest.raises(ImportError, match="pip install pymetis"):
            tm.DistributedMesh(mesh, 2, "metis")

    def fails(*_: Any, **__: Any) -> Any:
        raise NotConvergedError("the eigensolver stopped: use method='coordinate'")

    monkeypatch.setattr("tensormesh.mesh.partition.spectral.fiedler_vectors", fails)
    assert fiedler.fiedler_vectors is not fails
    with pytest.raises(NotConvergedError, match="coordinate"):
        tm.DistributedMesh(mesh, 2, "spectral")


def test_weights_share_out_the_work() -> None:
    """distributed-api DistributedMesh | `weights=` per cell: equal work a part."""
    mesh = tm.Mesh.gen_rectangle(n=(20, 20))
    weights = 1.0 + 9.0 * (mesh.points[mesh.cells["triangle"]].mean(1)[:, 0] < 0.5).double()
    for method in METHODS:
        dmesh = tm.DistributedMesh(mesh, 4, method, weights=weights)
        work = [float(weights[part.cell_data["orig_cid"]["triangle"]].sum()) for part in dmesh]
        assert max(work) / (sum(work) / 4) <= 1.06, (method, work)
        assert max(dmesh.quality().cells) > 1.5 * min(dmesh.quality().cells)


def test_quality_counts_what_one_can_count_by_hand() -> None:
    """distributed-api DistributedMesh | `quality()`: cells, nodes, ghosts, cut, imbalance."""
    mesh = tm.Mesh.gen_rectangle(n=(4, 1), element_type="quad")  # a row of four
    with labelled([0, 1, 1, 2]):
        q = tm.DistributedMesh(mesh, 3).quality()
    assert q.cells.tolist() == [1, 2, 1]
    assert q.owned.tolist() == [4, 4, 2]  # the lowest part has the interface
    assert q.ghosts.tolist() == [0, 2, 2]
    assert q.neighbours.tolist() == [1, 2, 1]
    assert q.edge_cut == 2
    assert q.imbalance == pytest.approx(2 / (4 / 3) - 1)


def masks(device_mesh: DeviceMesh | None) -> list[tuple[Tensor, Tensor]]:
    """Boundary of a cube and of its parts: which nodes, by number in the whole."""
    mesh = mesh_of("tet")
    dmesh = dmesh_of(mesh, device_mesh, "metis")
    ids = dmesh.parts[0].node_ids if dmesh.in_job else torch.arange(mesh.n_points)
    return ids, dmesh.boundary_mask


@pytest.mark.parametrize("n", [0, 3])
def test_the_boundary_mask_is_physical(ranks: RankPool, n: int) -> None:
    """distributed-api DistributedMesh | `boundary_mask`: the physical boundary only."""
    x = tm.Mesh.gen_cube(n=(3, 2, 2)).points
    outer = ((x.abs() < 1e-9) | ((x - 1).abs() < 1e-9)).any(1)
    for ids, mask in ranks(n, masks) if n else [masks(None)]:
        assert mask.dtype == torch.bool
        assert torch.equal(mask, outer[ids])


def index_maps(device_mesh: DeviceMesh) -> dict[str, Tensor]:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    m = dmesh.index_map
    return {
        "offsets": m.offsets,
        "owned": m.owned_ids,
        "ghosts": m.ghost_ids,
        "owners": m.owner(m.ghosts),
        "part": dmesh.parts[0].node_ids,
        "global": m.local_to_global,
    }


def test_the_index_map(ranks: RankPool) -> None:
    """distributed-api DistributedMesh | `index_map`: owned and ghost nodes of this rank."""
    found = ranks(3, index_maps)
    everything = torch.cat([got["owned"] for got in found])
    assert torch.equal(everything.sort().values, torch.arange(mesh_of("tri").n_points))
    for rank, got in enumerate(found):
        assert int(got["offsets"][rank + 1] - got["offsets"][rank]) == len(got["owned"])
        both = torch.cat([got["owned"], got["ghosts"]])
        assert torch.equal(both.sort().values, got["part"])
        assert torch.equal(everything[got["global"]], both)
        for ghost, owner in zip(got["ghosts"].tolist(), got["owners"].tolist(), strict=True):
            assert ghost in found[owner]["owned"].tolist()


# ---- ownership ----


def touching(mesh: tm.Mesh, labels: Tensor) -> list[tuple[int, ...]]:
    """Parts with a cell on each node."""
    parts: list[set[int]] = [set() for _ in range(mesh.n_points)]
    cells = [cell for conn in mesh.top_cells().values() for cell in conn.tolist()]
    for cell, label in zip(cells, labels.tolist(), strict=True):
        for node in cell:
            parts[node].add(label)
    return [tuple(sorted(p)) for p in parts]


@pytest.mark.parametrize("kind", ["tri", "mixed", "tet", "triangle6"])
@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_balanced_ownership_gives_whole_interfaces_to_members(kind: str, n_parts: int) -> None:
    """distributed-api Ownership | `ownership="balanced"`: each whole interface to one member."""
    mesh = mesh_of(kind)
    labels = partition_cells(mesh, n_parts, "metis")
    owner = node_owners(mesh, labels, "balanced").tolist()
    owners_of: dict[tuple[int, ...], set[int]] = {}
    for members, part in zip(touching(mesh, labels), owner, strict=True):
        assert part in members
        owners_of.setdefault(members, set()).add(part)
    assert all(len(parts) == 1 for parts in owners_of.values())
    assert torch.equal(
        node_owners(mesh, labels, "lowest"),
        torch.tensor([members[0] for members in touching(mesh, labels)]),
    )
    assert owner == node_owners(mesh, labels, "balanced").tolist()


def off_rank(mesh: tm.Mesh, labels: Tensor, owner: Tensor) -> int:
    """Most node pairs whose values a part has to send."""
    sent = []
    for part in range(int(labels.max()) + 1):
        cells = mesh.cells["tetra"][labels == part]
        pairs = torch.unique((cells[:, :, None] * mesh.n_points + cells[:, None, :]).flatten())
        sent.append(int((owner[pairs // mesh.n_points] != part).sum()))
    return max(sent)


@pytest.mark.parametrize("method", ["coordinate", "metis"])
@pytest.mark.parametrize("n_parts", [4, 7, 8])
def test_balanced_ownership_evens_out_rows_and_messages(method: str, n_parts: int) -> None:
    """distributed-api Ownership | `ownership="balanced"`: rows, largest sender, ghosts."""
    mesh = tm.Mesh.gen_cube(n=(15, 15, 15))
    labels = partition_cells(mesh, n_parts, method)
    found = {}
    for rule in ("lowest", "balanced"):
        owner = node_owners(mesh, labels, rule)
        rows = torch.bincount(owner, minlength=n_parts).double()
        with labelled(labels.tolist()):
            q = tm.DistributedMesh(mesh, n_parts, ownership=rule).quality()
        assert q.owned.tolist() == rows.tolist()
        found[rule] = (
            float(rows.max() / rows.mean()),
            off_rank(mesh, labels, owner),
            int(q.ghosts.sum()),
        )
    (rows, sender, ghosts), (rows_even, sender_even, ghosts_even) = found.values()
    assert rows_even <= 1.07 < rows
    assert sender_even <= 0.77 * sender
    assert abs(ghosts_even / ghosts - 1) <= 0.1


def with_ownership(device_mesh: DeviceMesh | None, rule: str) -> dict[str, Any]:
    mesh = mesh_of("mixed")
    dmesh = tm.DistributedMesh(mesh, 3, "metis", device_mesh=device_mesh, ownership=rule)
    K = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=data_of(mesh))
    f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
    return {
        "owned": dmesh.index_map.owned_ids,
        "K": K.to_single().to_dense(),
        "f": dmesh.gather(f),
        "Kf": dmesh.gather(K @ f),
    }


@pytest.mark.parametrize("rule", ["lowest", "balanced"])
def test_the_same_matrix_whoever_owns_the_rows(ranks: RankPool, rule: str) -> None:
    """distributed-api Ownership | the same owner on every rank, the same matrix."""
    mesh = mesh_of("mixed")
    K = Transport.from_mesh(mesh)(**data_of(mesh)).to_dense()
    f = tm.const_node_assembler().from_mesh(mesh)()
    found = ranks(3, with_ownership, rule)
    owner = node_owners(mesh, partition_cells(mesh, 3, "metis"), rule)
    for rank, got in enumerate([*found, with_ownership(None, rule)]):
        if rank < 3:
            assert torch.equal(got["owned"], (owner == rank).nonzero().flatten())
        torch.testing.assert_close(got["K"], K, rtol=0, atol=1e-13)
        torch.testing.assert_close(got["f"], f, rtol=0, atol=1e-14)
        torch.testing.assert_close(got["Kf"], K @ f, rtol=0, atol=1e-13)


def differing(device_mesh: DeviceMesh) -> list[tuple[str, str] | None]:
    mesh, rank = mesh_of("tri"), device_mesh.get_local_rank()
    return [
        outcome(tm.DistributedMesh, mesh, device_mesh=device_mesh, ownership=rule)
        for rule in ("highest" if rank else "lowest", "balanced" if rank else "lowest")
    ]


def test_unknown_or_different_ownership_is_refused_on_every_rank(ranks: RankPool) -> None:
    """distributed-api Ownership | unknown rule: `ValueError` on every rank."""
    for unknown, different in ranks(3, differing):
        assert unknown[0] == different[0] == "ValueError"
        assert "'highest'" in unknown[1]
        assert "different" in different[1]


def test_the_lowest_part_that_touches_a_node_owns_it() -> None:
    """distributed-api Ownership | lowest rank: of all parts that share a node."""
    mesh = mesh_of("grid")
    with labelled([i % 3 for i in range(18)]):
        dmesh = tm.DistributedMesh(mesh, 3)
    members = touching(mesh, torch.tensor([i % 3 for i in range(18)]))
    for part in dmesh.parts:
        expected = [min(members[node]) for node in part.node_ids.tolist()]
        assert part.node_owner.tolist() == expected
