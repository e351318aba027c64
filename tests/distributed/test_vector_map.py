"""Vectors in each form that a user may have them in, on parts of every shape."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import cuts, dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool


def vectors(device_mesh: DeviceMesh, labels: list[int], h: int, k: int | None) -> dict[str, Any]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh, labels)
    shape = (mesh.n_points * h,) if k is None else (mesh.n_points * h, k)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    owned = dmesh.scatter(x)
    ids = dmesh.parts[0].node_ids
    part = x.reshape(mesh.n_points, -1)[ids].reshape(-1, *x.shape[1:])
    map_ = dmesh.vectors
    (seen,) = dmesh.part_values(owned)
    return {
        "owned": owned,
        "gathered": torch.equal(dmesh.gather(owned), x),
        "forms": [torch.equal(map_.owned(form, "x", h), owned) for form in (x, part, owned)],
        "seen": torch.equal(seen.reshape(part.shape), part),
        "dot": float(dmesh.dot(owned, 2 * owned)),
        "norm": float(dmesh.norm(owned)),
        "sum": float(dmesh.sum(owned)),
        "mean": float(dmesh.mean(owned)),
        "boundary": torch.equal(dmesh.boundary_mask, mesh.boundary_mask[ids]),
        "x": x,
    }


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_form_gives_the_owned_slice(ranks: RankPool, n: int, data: st.DataObject) -> None:
    """distributed-api distributed_node_assemble | data in any form give the owned slice."""
    labels = data.draw(cuts(n))
    h, k = data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from([None, 1, 3]))
    found = ranks(n, vectors, labels, h, k)
    x = found[0]["x"]
    assert sum(got["owned"].shape[0] for got in found) == x.shape[0]
    for got in found:
        assert got["gathered"]
        assert got["forms"] == [True] * 3
        assert got["seen"]
        assert got["boundary"]
        assert got["dot"] == pytest.approx(2 * float((x * x).sum()), rel=1e-13)
        assert got["norm"] == pytest.approx(float(x.norm()), rel=1e-13)
        assert got["sum"] == pytest.approx(float(x.sum()), rel=1e-11)
        assert got["mean"] == pytest.approx(float(x.mean()), rel=1e-11)


def complex_reductions(device_mesh: DeviceMesh) -> list[complex]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh)
    x = torch.complex(mesh.points[:, 0], mesh.points[:, 1])
    y = (1.0 + 2.0j) * x + 1.0
    a, b = dmesh.scatter(x), dmesh.scatter(y)
    reduced = [dmesh.dot(a, b), dmesh.norm(b), dmesh.sum(b), dmesh.mean(b)]
    whole = [torch.vdot(x, y), y.norm(), y.sum(), y.mean()]
    return [complex(got) - complex(right) for got, right in zip(reduced, whole, strict=True)]


def test_complex_vectors(ranks: RankPool) -> None:
    for errors in ranks(3, complex_reductions):
        assert errors == pytest.approx([0.0] * 4, abs=1e-12)


def wrong_lengths(device_mesh: DeviceMesh, bad_rank: int | None) -> list[Any]:
    """What each motion says to a vector that fits no form, given by one rank or by all."""
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    n, me = dmesh.n_global_points, device_mesh.get_local_rank()
    n_owned = dmesh.index_map.n_owned
    bad = bad_rank in (None, me)
    errors = [
        outcome(dmesh.scatter, torch.zeros(n + 1 if bad else n)),
        outcome(dmesh.gather, torch.zeros(n_owned + 1 if bad else n_owned)),
        outcome(dmesh.vectors.owned, torch.zeros(n + 1 if bad else n), "load"),
        outcome(dmesh.part_values, torch.zeros(n_owned + 1 if bad else n_owned)),
    ]
    total = float(dmesh.sum(dmesh.scatter(torch.ones(n))))
    return [*errors, total == n]


@pytest.mark.parametrize("bad_rank", [None, 0, 2])
def test_a_length_that_fits_nothing_is_refused_on_every_rank(
    ranks: RankPool, bad_rank: int | None
) -> None:
    for *errors, works_after in ranks(3, wrong_lengths, bad_rank):
        assert [name for name, _ in errors] == ["ValueError"] * 4
        assert "load" in errors[2][1]
        assert works_after


def different_forms(device_mesh: DeviceMesh) -> Any:
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    first = device_mesh.get_local_rank() == 0
    x = torch.zeros(dmesh.n_global_points if first else dmesh.index_map.n_owned)
    return outcome(dmesh.vectors.owned, x, "load")


def test_ranks_that_give_different_forms_are_told(ranks: RankPool) -> None:
    for name, text in ranks(3, different_forms):
        assert name == "ValueError"
        assert "load has different forms on different ranks" in text


def test_one_process_has_global_vectors() -> None:
    mesh = mesh_of("tet")
    dmesh = tm.DistributedMesh(mesh, 3)
    x = mesh.points[:, 0]
    assert torch.equal(dmesh.scatter(x), x)
    assert torch.equal(dmesh.gather(x), x)
    assert float(dmesh.dot(x, x)) == pytest.approx(float(x @ x))
    values: list[Tensor] = dmesh.part_values(x)
    for part, seen in zip(dmesh.submeshes, values, strict=True):
        assert torch.equal(seen, part.points[:, 0])
