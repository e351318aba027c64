"""The assembly plan: right on parts of every shape, made once, and then only values travel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import layout as layout_module
from tensormesh.distributed import mesh as mesh_module
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import (
    NOTHING_OWNED,
    Load,
    Reaction,
    Transport,
    cuts,
    data_of,
    dmesh_of,
    mesh_of,
    recorded,
    two_fields,
)
from tests.rank_pool import RankPool


def assembled(device_mesh: DeviceMesh, labels: list[int]) -> dict[str, Any]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh, labels)
    K = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=data_of(mesh))
    R = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=two_fields(mesh))
    f = tm.distributed_node_assemble(Load, dmesh, call_kwargs=data_of(mesh))
    x = torch.sin(torch.arange(2.0 * mesh.n_points, dtype=torch.float64))
    return {
        "n_owned": dmesh.index_map.n_owned,
        "K": K.to_single().to_dense(),
        "R": R.to_single().to_dense(),
        "f": dmesh.gather(f),
        "Rx": dmesh.gather(R @ dmesh.scatter(x)),
        "diagonal": dmesh.gather(R.diagonal()),
    }


def expected() -> dict[str, Tensor]:
    mesh = mesh_of("grid")
    R = Reaction.from_mesh(mesh)(**two_fields(mesh))
    x = torch.sin(torch.arange(2.0 * mesh.n_points, dtype=torch.float64))
    return {
        "K": Transport.from_mesh(mesh)(**data_of(mesh)).to_dense(),
        "R": R.to_dense(),
        "f": Load.from_mesh(mesh)(**data_of(mesh)),
        "Rx": R @ x,
        "diagonal": R.diagonal(),
    }


def assert_parity(ranks: RankPool, labels: list[int], n: int) -> list[int]:
    found = ranks(n, assembled, labels)
    for got in found:
        for name, right in expected().items():
            torch.testing.assert_close(got[name], right, rtol=0, atol=1e-13, msg=name)
    return [got["n_owned"] for got in found]


@pytest.mark.parametrize("n", [2, 3, 4])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_cut_gives_the_serial_matrix(ranks: RankPool, n: int, data: st.DataObject) -> None:
    assert_parity(ranks, data.draw(cuts(n)), n)


def test_a_rank_may_own_nothing(ranks: RankPool) -> None:
    """distributed-api Ownership | a part may own no row at all: assembly works."""
    assert assert_parity(ranks, NOTHING_OWNED, 2) == [16, 0]
    # Rank 0 has every cell but two, which each own nothing, and rank 2 sees no rank but 0.
    labels = [{8: 1, 9: 2}.get(cell, 0) for cell in range(18)]
    assert assert_parity(ranks, labels, 3) == [16, 0, 0]


# ---- once ----


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Number of plans and layouts that are made."""
    counts = {"plans": 0, "layouts": 0}
    classes = {"plans": mesh_module.AssemblyPlan, "layouts": layout_module.MatrixLayout}
    usual = {name: cls.__init__ for name, cls in classes.items()}

    def counting(name: str) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            counts[name] += 1
            usual[name](self, *args, **kwargs)

        return init

    try:
        for name, cls in classes.items():
            cls.__init__ = counting(name)
        yield counts
    finally:
        for name, cls in classes.items():
            cls.__init__ = usual[name]


def constructions(device_mesh: DeviceMesh | None) -> list[dict[str, int]]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    found = []
    with counted() as counts:
        asm = tm.distributed.distributed(Transport).from_mesh(dmesh)
        for _ in range(3):
            K = asm(**data_of(mesh))
        found.append(dict(counts))
        M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
        K + M
        found.append(dict(counts))
        tm.distributed_element_assemble(tm.LinearElasticityElementAssembler, dmesh)
        found.append(dict(counts))
    return found


@pytest.mark.parametrize("n", [0, 3])
def test_the_symbolic_phase_is_done_once(ranks: RankPool, n: int) -> None:
    """distributed-api @distributed | the symbolic phase is re-used by the same instance."""
    for three_calls, second_matrix, blocks in (
        ranks(n, constructions) if n else [constructions(None)]
    ):
        assert three_calls == {"plans": 1, "layouts": 1}
        assert second_matrix == {"plans": 1, "layouts": 1}
        assert blocks == {"plans": 1, "layouts": 2}


def messages_of_a_call(device_mesh: DeviceMesh) -> dict[str, Any]:
    """Collectives of the second call of an assembler, and the number of off-rank entries."""
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    asm = tm.distributed.distributed(tm.LinearElasticityElementAssembler).from_mesh(dmesh)
    asm()
    with recorded() as messages:
        asm()
    sent, received = sum(dmesh.plan._send_counts), sum(dmesh.plan._recv_counts)
    return {"messages": messages, "sent": dmesh.plan.off_rank_entries, "rows": (sent, received)}


def test_a_numeric_call_sends_the_values_of_off_rank_entries_only(ranks: RankPool) -> None:
    found = ranks(3, messages_of_a_call)
    assert found[0]["sent"] == 0  # the lowest rank owns all rows that its cells touch
    assert found[2]["sent"] > 0
    for got in found:
        sent, received = got["rows"]
        assert sent == got["sent"]
        values = [m for m in got["messages"] if m.dtype == torch.float64]
        # One exchange of the four numbers of each block; the rest agrees on a few integers.
        assert [m.name for m in values] == ["all_to_all_single"]
        assert values[0].numel == 4 * max(sent, received)
        assert all(m.numel <= 32 for m in got["messages"] if m not in values)
