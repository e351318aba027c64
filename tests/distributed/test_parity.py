"""Distributed assembly equals serial assembly, for every cell type, partitioner and world size."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import (
    HIGH_ORDER,
    KINDS,
    METHODS,
    Flux,
    Load,
    Measure,
    Reaction,
    Transport,
    VectorLoad,
    data_of,
    dmesh_of,
    mesh_of,
    two_fields,
)
from tests.rank_pool import RankPool

Result = dict[str, Any]

MATRICES = {
    "laplace": (tm.LaplaceElementAssembler, None, {}),
    "mass": (tm.MassElementAssembler, None, {}),
    "transport": (Transport, data_of, {}),
    "elasticity": (tm.LinearElasticityElementAssembler, None, {"E": 3.0, "nu": 0.3}),
    "reaction": (Reaction, two_fields, {}),
}
NODE_VECTORS = {"load": (Load, data_of), "vector load": (VectorLoad, None)}
FACETS = ("whole boundary", "group", "mask", "named mask")


def facet_choice(mesh: tm.Mesh, which: str) -> Tensor | str | None:
    return {
        "whole boundary": None,
        "group": "left",
        "mask": mesh.points[:, 0] > 1 - 1e-9,
        "named mask": "is_top_boundary",
    }[which]


def facet_data(mesh: tm.Mesh) -> dict[str, Tensor]:
    return {"a": 1.0 + mesh.points[:, 1] ** 2}


def serial(kind: str) -> Result:
    mesh = mesh_of(kind)
    found: Result = {}
    for name, (cls, data, kwargs) in MATRICES.items():
        K = cls.from_mesh(mesh, **kwargs)(**(data(mesh) if data else {}))
        found[name] = (K.row, K.col, K.values)
    for name, (cls, data) in NODE_VECTORS.items():
        found[name] = cls.from_mesh(mesh)(**(data(mesh) if data else {}))
    for which in FACETS:
        flux = Flux.from_mesh(mesh, facet_choice(mesh, which))
        found[which] = flux(point_data=facet_data(mesh))
    return found


def distributed(mesh: tm.Mesh, dmesh: tm.DistributedMesh) -> Result:
    found: Result = {}
    for name, (cls, data, kwargs) in MATRICES.items():
        call = data(mesh) if data else None
        K = tm.distributed_element_assemble(cls, dmesh, call_kwargs=call, **kwargs).to_single()
        found[name] = (K.row, K.col, K.values)
    for name, (cls, data) in NODE_VECTORS.items():
        call = data(mesh) if data else None
        found[name] = dmesh.gather(tm.distributed_node_assemble(cls, dmesh, call_kwargs=call))
    for which in FACETS:
        f = tm.distributed_node_assemble(
            Flux, dmesh, point_data=facet_data(mesh), boundary_mask=facet_choice(mesh, which)
        )
        found[which] = dmesh.gather(f)
    return found


def on_ranks(device_mesh: DeviceMesh, kinds: tuple[str, ...]) -> dict[tuple[str, str], Result]:
    found = {}
    for kind in kinds:
        mesh = mesh_of(kind)
        for method in METHODS:
            found[kind, method] = distributed(mesh, dmesh_of(mesh, device_mesh, method))
    return found


def assert_equal(found: Result, expected: Result, label: str) -> None:
    for name in MATRICES:
        row, col, values = found[name]
        assert torch.equal(row, expected[name][0]), (label, name)
        assert torch.equal(col, expected[name][1]), (label, name)
        K = expected[name][2]
        error = (values - K).abs().max()
        assert error <= 1e-12 * K.abs().max(), (label, name, float(error))
    for name in (*NODE_VECTORS, *FACETS):
        f = expected[name]
        error = (found[name] - f).abs().max()
        assert error <= 1e-12 * f.abs().max(), (label, name, float(error))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_assemble_what_one_process_does(ranks: RankPool, n: int) -> None:
    """distributed-api distributed_element_assemble | in a job: the values of one process.
    known-faults | 21: methods "spectral" and "metis" work.

    features | groups of cells and facets, several cell types in a mesh: distributed.
    features | partition by coordinates, partition by spectra, partition by METIS: distributed.
    features | ElementAssembler, NodeAssembler, FacetAssembler, vector-valued forms: distributed.
    features | fields at nodes, values per cell: distributed.
    """
    expected = {kind: serial(kind) for kind in KINDS}
    by_rank = ranks(n, on_ranks, KINDS, timeout=240.0)
    for rank, cases in enumerate(by_rank):
        assert len(cases) == len(KINDS) * len(METHODS)
        for (kind, method), found in cases.items():
            assert_equal(found, expected[kind], f"{kind} {method} rank {rank}")


def test_two_ranks_assemble_orders_3_and_4(ranks: RankPool) -> None:
    expected = {kind: serial(kind) for kind in HIGH_ORDER}
    for rank, cases in enumerate(ranks(2, on_ranks, tuple(HIGH_ORDER), timeout=120.0)):
        assert len(cases) == len(HIGH_ORDER) * len(METHODS)
        for (kind, method), found in cases.items():
            assert_equal(found, expected[kind], f"{kind} {method} rank {rank}")


@pytest.mark.parametrize("kind", KINDS)
def test_parts_in_one_process_assemble_what_the_whole_does(kind: str) -> None:
    """distributed-api distributed_element_assemble | single process: every part.

    features | distributed_element_assemble, distributed_node_assemble: serial.
    """
    expected, mesh = serial(kind), mesh_of(kind)
    for n_parts, method in zip((1, 2, 3, 5, 7), METHODS * 2, strict=False):
        dmesh = tm.DistributedMesh(mesh, n_parts, method)
        assert_equal(distributed(mesh, dmesh), expected, f"{kind} {method} {n_parts} parts")


# ---- what the entry points give ----


def every_entry_point(device_mesh: DeviceMesh) -> dict[str, Tensor]:
    mesh = mesh_of("mixed")
    dmesh = dmesh_of(mesh, device_mesh)
    call = data_of(mesh)
    rank = device_mesh.get_local_rank()
    asm = tm.distributed.distributed(Transport).from_mesh(dmesh)
    found = {
        "assemble": tm.distributed_element_assemble(Transport, dmesh, call_kwargs=call),
        "per rank": tm.distributed_element_assemble_per_rank(
            Transport, dmesh, rank, call_kwargs=call
        ),
        "decorator": asm(**call),
        "again": asm(**call),
        "positional": asm(None, None, call["point_data"], call["element_data"], {"s": 0.7}),
        "sparse": tm.distributed_element_assemble(
            Transport, dmesh, project="sparse", call_kwargs=call
        ),
    }
    matrices = {name: K.to_single() for name, K in found.items()}
    matrices["to_sparse"] = tm.distributed_element_assemble_to_sparse(
        Transport, dmesh, call_kwargs=call
    )
    return {name: K.values for name, K in matrices.items()}


def test_all_entry_points_give_the_same_bits(ranks: RankPool) -> None:
    """distributed-api per-rank assembly | lockstep: the same bits at every entry point.
    known-faults | 20: global `point_data` and `element_data` are sliced to the part.

    features | distributed_element_assemble, distributed_element_assemble_per_rank: distributed.
    features | distributed_element_assemble_to_sparse, distributed_node_assemble: distributed.
    """
    for values in ranks(3, every_entry_point):
        first = values["assemble"]
        assert {name for name, v in values.items() if not torch.equal(v, first)} == set()


def global_and_part_data(device_mesh: DeviceMesh) -> list[Tensor]:
    mesh = mesh_of("mixed")
    dmesh = dmesh_of(mesh, device_mesh)
    call = data_of(mesh)
    part = dmesh.submeshes[device_mesh.get_local_rank()]
    ids, cells = part.point_data["orig_nid"], part.cell_data["orig_cid"]
    a, k = call["point_data"]["a"], call["element_data"]["k"]
    forms = [
        (a, k),
        (a[ids], {kind: x[cells[kind]] if kind in cells else x[:0] for kind, x in k.items()}),
        (dmesh.scatter(a), k),
    ]
    found = []
    for nodal, cellwise in forms:
        given = {
            "point_data": {"a": nodal},
            "element_data": {"k": cellwise},
            "scalar_data": {"s": torch.tensor(0.7)},
        }
        K = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=given)
        found.append(K.to_single().values)
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_data_of_the_whole_of_the_part_and_owned_give_the_same_matrix(
    ranks: RankPool, n: int
) -> None:
    """distributed-api per-rank assembly | `call_kwargs`: global, of the part, or owned."""
    for whole, part, owned in ranks(n, global_and_part_data):
        assert torch.equal(whole, part)
        assert torch.equal(whole, owned)


def repeated(device_mesh: DeviceMesh) -> list[tuple[Tensor, Tensor]]:
    found = []
    for _ in range(2):
        mesh = mesh_of("tet")
        dmesh = dmesh_of(mesh, device_mesh, "metis")
        for _ in range(2):
            K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
            found.append((K.values, tm.distributed_node_assemble(VectorLoad, dmesh)))
    return found


def test_repeated_calls_give_the_same_bits(ranks: RankPool) -> None:
    for calls in ranks(3, repeated):
        assert len(calls) == 4
        for values, f in calls[1:]:
            assert torch.equal(values, calls[0][0])
            assert torch.equal(f, calls[0][1])


def boundary_lengths(device_mesh: DeviceMesh) -> list[float]:
    mesh = tm.Mesh.gen_rectangle(n=(7, 7))
    dmesh = dmesh_of(mesh, device_mesh)
    left = mesh.points[:, 0] == 0
    choices: list[Any] = [None, "left", left, left[dmesh.parts[0].node_ids]]
    return [
        float(dmesh.sum(tm.distributed_node_assemble(Measure, dmesh, boundary_mask=choice)))
        for choice in choices
    ]


def test_the_boundary_is_the_physical_one(ranks: RankPool) -> None:
    """known-faults | 29: a boundary integral on 3 parts of the unit square is 4.

    features | facets and boundary: distributed.
    """
    for lengths in ranks(3, boundary_lengths):
        assert lengths == pytest.approx([4.0, 1.0, 1.0, 1.0], rel=1e-13)
    parts = tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(7, 7)), 3)
    f = tm.distributed_node_assemble(Measure, parts)
    assert float(f.sum()) == pytest.approx(4.0, rel=1e-13)


def in_dtype(device_mesh: DeviceMesh, dtype: torch.dtype) -> tuple[torch.dtype, Tensor]:
    mesh = tm.Mesh.gen_rectangle(n=(4, 3)).to(torch.float32)
    dmesh = dmesh_of(mesh, device_mesh)
    scale = torch.tensor(2.0 + (1.0j if dtype.is_complex else 0.0), dtype=dtype)
    K = tm.distributed_element_assemble(
        ScaledMass, dmesh, call_kwargs={"scalar_data": {"scale": scale}}
    )
    return K.values.dtype, K.to_single().values.sum()


class ScaledMass(tm.ElementAssembler):
    def forward(self, u, v, scale):
        return scale * u * v


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_every_rank_has_the_dtype_of_the_form(ranks: RankPool, dtype: torch.dtype) -> None:
    """known-faults | 30: float32 or complex, the dtype of the form on every rank.

    features | single precision: distributed.
    """
    expected = 2.0 + (1.0j if dtype.is_complex else 0.0)
    for kept, total in ranks(3, in_dtype, dtype):
        assert kept == dtype
        assert complex(total) == pytest.approx(expected, rel=1e-5)
