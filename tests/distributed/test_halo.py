"""The two motions of a halo: what arrives where, and that each is the other's adjoint."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.halo import Halo
from tests.distributed.layouts import Layout, index_map_of, layouts
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]


def values(layout: Layout, rank: int, seed: int, local: bool, width: int | None) -> Tensor:
    """Random rows, owned or local; the driver and the rank draw the same."""
    n = len(layout.local_ids(rank) if local else layout.owned(rank))
    shape = (n,) if width is None else (n, width)
    generator = torch.Generator().manual_seed(1000 * seed + 10 * rank + local)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def motions(
    device_mesh: DeviceMesh, layout: Layout, seed: int, width: int | None
) -> dict[str, Any]:
    rank = device_mesh.get_local_rank()
    halo = Halo(index_map_of(device_mesh, layout), device_mesh)
    u = values(layout, rank, seed, False, width).requires_grad_()
    v = values(layout, rank, seed, True, width).requires_grad_()
    forward, reverse = halo.scatter_forward(u), halo.scatter_reverse(v)
    (grad_u,) = torch.autograd.grad(forward, u, v.detach())
    (grad_v,) = torch.autograd.grad(reverse, v, u.detach())
    copies = v.detach().clone().requires_grad_()
    (grad_copies,) = torch.autograd.grad(halo.consistent(copies), copies, v.detach())
    return {
        "forward": forward.detach(),
        "reverse": reverse.detach(),
        "ghosts": halo.start_forward(u).wait(),
        "grad_u": grad_u,
        "grad_v": grad_v,
        "grad_copies": grad_copies,
        "neighbours": halo.neighbours,
    }


@pytest.mark.parametrize("n", SIZES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_forward_copies_reverse_adds_and_they_are_adjoint(
    ranks: RankPool, n: int, data: st.DataObject
) -> None:
    layout = data.draw(layouts(n))
    seed, width = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([None, 1, 3]))
    found = ranks(n, motions, layout, seed, width)
    u = [values(layout, rank, seed, False, width) for rank in range(n)]
    v = [values(layout, rank, seed, True, width) for rank in range(n)]
    of_id = {i: u[rank][place] for rank in range(n) for place, i in enumerate(layout.owned(rank))}
    sums: dict[int, Tensor] = {}
    for rank in range(n):
        for place, i in enumerate(layout.local_ids(rank)):
            sums[i] = sums.get(i, torch.zeros_like(v[rank][place])) + v[rank][place]

    for rank, got in enumerate(found):
        local, owned = layout.local_ids(rank), layout.owned(rank)
        for place, i in enumerate(local):
            assert torch.equal(got["forward"][place], of_id[i])
            torch.testing.assert_close(got["grad_copies"][place], sums[i])
        for place, i in enumerate(owned):
            torch.testing.assert_close(got["reverse"][place], sums[i])
        assert torch.equal(got["ghosts"], got["forward"][len(owned) :])
        # The gradient of one motion is the other one.
        torch.testing.assert_close(got["grad_u"], got["reverse"])
        torch.testing.assert_close(got["grad_v"], got["forward"])
        sends = {r for r in range(n) if any(layout.owner[i] == rank for i in layout.ghosts[r])}
        receives = {layout.owner[i] for i in layout.ghosts[rank]}
        assert got["neighbours"] == sorted(sends | receives)

    left = sum(float((got["forward"] * y).sum()) for got, y in zip(found, v, strict=True))
    right = sum(float((x * got["reverse"]).sum()) for got, x in zip(found, u, strict=True))
    assert left == pytest.approx(right, abs=1e-12)


def second_derivative(device_mesh: DeviceMesh, layout: Layout) -> bool:
    rank = device_mesh.get_local_rank()
    halo = Halo(index_map_of(device_mesh, layout), device_mesh)
    u = values(layout, rank, 0, False, None).requires_grad_()
    (grad,) = torch.autograd.grad((halo.scatter_forward(u) ** 3).sum(), u, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), u)
    copies = torch.zeros(len(layout.local_ids(rank)), dtype=torch.float64)
    copies[: len(u)] = 1.0
    count = halo.scatter_reverse(halo.scatter_forward(copies[: len(u)]))
    return bool(torch.allclose(second, 6 * u.detach() * count))


@pytest.mark.parametrize("last", [[7, 3], []])
def test_second_derivatives_flow(ranks: RankPool, last: list[int]) -> None:
    """sum over copies of u^3: the second derivative is 6 u times the number of copies.

    Also where a rank sends but has no ghosts.
    """
    layout = Layout({0: 0, 3: 1, 4: 1, 7: 0, 9: 2}, [[4], [7, 0, 9], last])
    assert ranks(3, second_derivative, layout) == [True] * 3
