"""Dirichlet conditions on sharded systems: parity with serial, in every form, nothing gathered."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import (
    NOTHING_OWNED,
    Reaction,
    cuts,
    dmesh_of,
    mesh_of,
    outcome,
    recorded,
    two_fields,
)
from tests.rank_pool import RankPool


def right_hand_side(mesh: tm.Mesh) -> Tensor:
    return torch.cos(torch.arange(2.0 * mesh.n_points, dtype=torch.float64))


def prescribed(mesh: tm.Mesh) -> Tensor:
    return torch.sin(3.0 + torch.arange(2.0 * mesh.n_points, dtype=torch.float64))


def part_of(x: Tensor, dmesh: tm.DistributedMesh) -> Tensor:
    """A global vector of two unknowns a node for the nodes of this rank's part."""
    return x.reshape(-1, 2)[dmesh.parts[0].node_ids].flatten()


def reduced(
    device_mesh: DeviceMesh, kind: str, cut: str | list[int], mask: Tensor, form: str
) -> dict[str, Any]:
    """The reduced system of `Reaction` in the numbering of the input."""
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)
    K = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=two_fields(mesh))
    given = {
        "global": lambda x: x,
        "part": lambda x: part_of(x, dmesh),
        "owned": lambda x: dmesh.scatter(x.to(torch.float64)).to(x.dtype),
    }[form]
    condenser = tm.Condenser(given(mask), given(prescribed(mesh)))
    K_i, f_i = condenser(K, given(right_hand_side(mesh)))
    vectors = K_i.layout.vectors
    u_i = vectors.scatter(torch.arange(1.0, vectors.n_global + 1, dtype=torch.float64))
    return {
        "K": K_i.to_single().to_dense(),
        "f": vectors.gather(f_i),
        "u": dmesh.gather(condenser.recover(u_i)),
        "prolonged": dmesh.gather(condenser.prolong(u_i)),
        "restricted": vectors.gather(condenser.restrict(given(right_hand_side(mesh)))),
        "Ku": vectors.gather(K_i @ u_i),
        "class": type(K_i).__name__,
        "uuid": K_i.partition_uuid == K.partition_uuid,
        "n_free": K_i.layout.n_owned,
    }


def assert_parity(
    ranks: RankPool, n: int, kind: str, cut: str | list[int], mask: Tensor, form: str = "global"
) -> list[int]:
    mesh = mesh_of(kind)
    K = Reaction.from_mesh(mesh)(**two_fields(mesh))
    condenser = tm.Condenser(mask, prescribed(mesh))
    K_i, f_i = condenser(K, right_hand_side(mesh))
    u_i = torch.arange(1.0, f_i.shape[0] + 1, dtype=torch.float64)
    right = {
        "K": K_i.to_dense(),
        "f": f_i,
        "u": condenser.recover(u_i),
        "prolonged": condenser.prolong(u_i),
        "restricted": condenser.restrict(right_hand_side(mesh)),
        "Ku": K_i.to_dense() @ u_i,
    }
    found = ranks(n, reduced, kind, cut, mask, form)
    for got in found:
        for name, x in right.items():
            torch.testing.assert_close(got[name], x, rtol=1e-13, atol=1e-12, msg=name)
        assert got["class"] == "DSparseMatrix"
        assert got["uuid"]
    return [got["n_free"] for got in found]


def sides(kind: str) -> Tensor:
    """Component 0 is held on the left, component 1 at the bottom."""
    x = mesh_of(kind).points
    return torch.stack([x[:, 0] < 1e-9, x[:, 1] < 1e-9], dim=1).flatten()


@pytest.mark.parametrize("form", ["global", "part", "owned"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_reduced_system_is_the_serial_one(ranks: RankPool, n: int, form: str) -> None:
    """distributed-api Boundary conditions | mask and value: global, for the part, or owned.

    features | Condenser: distributed.
    """
    assert_parity(ranks, n, "mixed", "metis", sides("mixed"), form)


@pytest.mark.parametrize("n", [2, 3])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_cut_and_any_mask(ranks: RankPool, n: int, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=32, max_size=32))
    form = data.draw(st.sampled_from(["global", "part", "owned"]))
    assert_parity(ranks, n, "grid", data.draw(cuts(n)), torch.tensor(bits), form)


def test_all_none_and_all_of_one_rank(ranks: RankPool) -> None:
    n_dofs = 2 * mesh_of("grid").n_points
    assert assert_parity(ranks, 3, "grid", "coordinate", torch.ones(n_dofs).bool()) == [0, 0, 0]
    free = assert_parity(ranks, 3, "grid", "coordinate", torch.zeros(n_dofs).bool())
    assert sum(free) == n_dofs
    rank_1 = dmesh_nodes_of_part(1).repeat_interleave(2)
    free = assert_parity(ranks, 3, "grid", "coordinate", rank_1)
    assert free[1] == 0
    assert min(free[0], free[2]) > 0
    assert assert_parity(ranks, 2, "grid", NOTHING_OWNED, sides("grid"))[1] == 0


def dmesh_nodes_of_part(number: int) -> Tensor:
    mesh = mesh_of("grid")
    mask = torch.zeros(mesh.n_points, dtype=torch.bool)
    mask[tm.DistributedMesh(mesh, 3)[number].point_data["orig_nid"]] = True
    return mask


# ---- again, with other values ----


def again(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("mixed")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=two_fields(mesh))
    f = dmesh.scatter(right_hand_side(mesh))
    mask, g = sides("mixed"), prescribed(mesh)
    condenser = tm.Condenser(mask)
    none = condenser(K, f)
    condenser.update_dirichlet(g)
    first, second = condenser(K, f), condenser(K, f)
    condenser.update_dirichlet(g[mask])  # one value a constrained unknown
    compact = condenser(K, f)
    doubled = condenser(2 * K, f)
    no_load = condenser(K)
    columns = condenser(K, torch.stack([f, 2 * f], dim=1))
    vectors = first[0].layout.vectors
    gathered = {
        "none": none[1],
        "first": first[1],
        "second": second[1],
        "compact": compact[1],
        "doubled": doubled[1],
        "no load": no_load[1],
        "columns": columns[1],
    }
    return {
        **{name: vectors.gather(x) for name, x in gathered.items()},
        "2K": doubled[0].to_single().to_dense(),
        "one layout": first[0].layout is second[0].layout is doubled[0].layout,
        "add": outcome(lambda: first[0] + doubled[0]),
        "wrong": outcome(condenser.recover, torch.zeros(first[1].shape[0] + 1)),
    }


@pytest.mark.parametrize("n", [1, 3])
def test_it_can_be_called_again(ranks: RankPool, n: int) -> None:
    """distributed-api Boundary conditions | called again with new values or a new matrix.
    known-faults | 31: `Condenser` on a distributed matrix, twice: works, sharded.
    """
    mesh = mesh_of("mixed")
    K = Reaction.from_mesh(mesh)(**two_fields(mesh))
    f, mask, g = right_hand_side(mesh), sides("mixed"), prescribed(mesh)
    dense, free = K.to_dense(), ~mask
    lifted = dense[free][:, mask] @ g[mask]
    right = {
        "none": f[free],
        "first": f[free] - lifted,
        "second": f[free] - lifted,
        "compact": f[free] - lifted,
        "doubled": f[free] - 2 * lifted,
        "no load": -lifted,
        "columns": torch.stack([f[free] - lifted, 2 * f[free] - lifted], dim=1),
        "2K": 2 * dense[free][:, free],
    }
    for got in ranks(n, again):
        for name, x in right.items():
            torch.testing.assert_close(got[name], x, rtol=1e-13, atol=1e-12, msg=name)
        assert got["one layout"]
        assert got["add"] is None
        assert got["wrong"][0] == "ValueError"


def solved(device_mesh: DeviceMesh) -> Tensor:
    mesh = mesh_of("tet")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
    condenser = tm.Condenser(mesh.boundary_mask.repeat_interleave(3), linear(mesh.points).flatten())
    K_i, f_i = condenser(K)
    return dmesh.gather(condenser.recover(K_i.solve(f_i, rtol=1e-13)))


def linear(x: Tensor) -> Tensor:
    return x @ torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 1.0], [3.0, 0.2, 0.1]]).double() + 1.0


def test_the_patch_test(ranks: RankPool) -> None:
    """A linear displacement on the boundary is one inside: elasticity is exact for it."""
    exact = linear(mesh_of("tet").points).flatten()
    for u in ranks(3, solved):
        torch.testing.assert_close(u, exact, rtol=1e-9, atol=1e-9)


# ---- errors, and what travels ----


def wrong_lengths(device_mesh: DeviceMesh, bad_rank: int | None) -> dict[str, Any]:
    mesh = mesh_of("mixed")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=two_fields(mesh))
    mask, f = sides("mixed"), right_hand_side(mesh)
    extra = int(bad_rank in (None, device_mesh.get_local_rank()))
    long_mask = torch.cat([mask, mask[:extra]])
    found = {
        "mask": outcome(tm.Condenser(long_mask), K, f),
        "rhs": outcome(tm.Condenser(mask), K, torch.cat([f, f[:extra]])),
    }
    found["after"] = outcome(tm.Condenser(mask), K, f)
    return found


@pytest.mark.parametrize("bad_rank", [None, 1])
def test_a_length_that_fits_nothing_is_refused_on_every_rank(
    ranks: RankPool, bad_rank: int | None
) -> None:
    """distributed-api Boundary conditions | a length that fits none is a `ValueError`."""
    for got in ranks(3, wrong_lengths, bad_rank):
        for name in ("mask", "rhs"):
            assert got[name][0] == "ValueError"
            assert name in got[name][1]
        assert got["after"] is None


def sizes_sent(device_mesh: DeviceMesh) -> tuple[int, int, int]:
    """Largest message of a condensation, reduction, solve and recovery of owned slices."""
    mesh = tm.Mesh.gen_rectangle(n=(40, 40))
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
    mask = dmesh.boundary_mask
    with recorded() as messages:
        condenser = tm.Condenser(mask)
        K_i, f_i = condenser(K, f)
        symbolic = max(m.numel for m in messages)
        messages.clear()
        condenser(K, f)
        condenser.recover(K_i.solve(f_i))
    return symbolic, max(m.numel for m in messages), mesh.n_points


def test_nothing_is_gathered(ranks: RankPool) -> None:
    """distributed-api Boundary conditions | nothing is gathered."""
    for symbolic, numeric, n_points in ranks(3, sizes_sent):
        assert symbolic <= 0.6 * n_points  # renumbering sends an id for each free unknown, once
        assert numeric <= 0.1 * n_points
