"""Collectives against what one process computes from all ranks' inputs."""

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tensormesh.distributed.collectives import (
    CollectiveError,
    agree,
    all_gather_ints,
    all_gather_rows,
    all_max,
    all_min,
    all_reduce_sum,
    broadcast,
    broadcast_object,
    exchange,
    raise_together,
    replicated,
    start_exchange,
    transport,
)
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.rank_pool import RankPool

SIZES = [1, 2, 3, 4]
DTYPES = [
    torch.bool,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


# ---- what ranks run: each gets all ranks' inputs and takes its own ----


def call_with_own(device_mesh: DeviceMesh, fn: Callable[..., Any], values: Sequence[Any]) -> Any:
    return fn(values[device_mesh.get_local_rank()], device_mesh)


def outcome_of(device_mesh: DeviceMesh, fn: Callable[..., Any], *args: Any) -> Any:
    """Type, message, notes and cause of the exception that ``fn`` raises."""
    try:
        fn(device_mesh, *args)
    except BaseException as error:
        cause = None if error.__cause__ is None else str(error.__cause__)
        return type(error), str(error), getattr(error, "__notes__", []), cause
    return None


def own_counts(rank: int, counts: list[list[int]]) -> tuple[list[int], list[int]]:
    return counts[rank], [row[rank] for row in counts]


def exchange_own(
    device_mesh: DeviceMesh, rows: list[Tensor], counts: list[list[int]], limit: int | None = None
) -> tuple[Tensor, Tensor]:
    """Both forms of the exchange, with the limit of a message lowered if given."""
    rank = device_mesh.get_local_rank()
    send_counts, recv_counts = own_counts(rank, counts)
    usual = transport.MAX_ELEMENTS
    transport.MAX_ELEMENTS = limit or usual
    try:
        blocking = exchange(rows[rank], send_counts, recv_counts, device_mesh)
        out = torch.zeros_like(blocking)
        pending = start_exchange(rows[rank], send_counts, recv_counts, device_mesh, out=out)
        assert pending.wait() is out
    finally:
        transport.MAX_ELEMENTS = usual
    return blocking, out


def exchanged(rows: list[Tensor], counts: list[list[int]], rank: int) -> Tensor:
    """What `rank` receives, from all inputs."""
    return torch.cat([rows[s].split(counts[s])[rank] for s in range(len(rows))])


@st.composite
def count_tables(draw: st.DrawFn, n: int) -> list[list[int]]:
    row = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    return draw(st.lists(row, min_size=n, max_size=n))


def rows_of(counts: list[list[int]], dtype: torch.dtype, trailing: tuple[int, ...]) -> list[Tensor]:
    """Distinguishable rows of any dtype."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(sum(row), *trailing) for row in counts]
    numbers = [torch.randint(-9, 9, shape, generator=generator) for shape in shapes]
    return [
        x > 0 if dtype == torch.bool else x.to(dtype) * (1 + 2j if dtype.is_complex else 1)
        for x in numbers
    ]


# ---- exchange ----


@pytest.mark.parametrize("n", SIZES)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_exchange_moves_rows_by_counts(ranks: RankPool, n: int, data: st.DataObject) -> None:
    counts = data.draw(count_tables(n))
    dtype = data.draw(st.sampled_from(DTYPES))
    trailing = data.draw(st.sampled_from([(), (2,), (2, 3), (0,)]))
    limit = data.draw(st.sampled_from([None, 1, 4]))
    rows = rows_of(counts, dtype, trailing)
    for rank, received in enumerate(ranks(n, exchange_own, rows, counts, limit)):
        for form in received:
            assert form.dtype == dtype
            assert torch.equal(form, exchanged(rows, counts, rank))


def weighted_exchange(
    device_mesh: DeviceMesh, rows: list[Tensor], weights: list[Tensor], counts: list[list[int]]
) -> tuple[Tensor, Tensor]:
    """Gradient of ``sum(w * exchange(x)^3)``, and the gradient of the sum of its squares."""
    rank = device_mesh.get_local_rank()
    x = rows[rank].requires_grad_()
    y = exchange(x, *own_counts(rank, counts), device_mesh)
    (g,) = torch.autograd.grad((weights[rank] * y**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g**2).sum(), x)
    return g.detach(), h


@pytest.mark.parametrize("n", SIZES)
def test_exchange_is_differentiable_twice(ranks: RankPool, n: int) -> None:
    counts = [[(i + 2 * j) % 3 for j in range(n)] for i in range(n)]
    rows = [torch.rand(sum(row), 2, dtype=torch.float64) for row in counts]
    weights = [torch.rand_like(exchanged(rows, counts, r)) for r in range(n)]
    back = [[counts[i][j] for i in range(n)] for j in range(n)]
    for rank, (g, h) in enumerate(ranks(n, weighted_exchange, rows, weights, counts)):
        x, w = rows[rank], exchanged(weights, back, rank)
        assert torch.allclose(g, 3 * w * x**2)
        assert torch.allclose(h, 36 * w**2 * x**3)


@pytest.mark.parametrize(
    ("send", "recv", "message"),
    [([1], [1, 1], "send_counts"), ([1, 1], [2], "recv_counts"), ([-1, 3], [1, 1], "send_counts")],
)
def test_counts_must_be_one_per_rank(
    ranks: RankPool, send: list[int], recv: list[int], message: str
) -> None:
    for kind, text, _, _ in ranks(2, outcome_of, bad_exchange, send, recv, None):
        assert kind is ValueError
        assert message in text


def test_counts_must_add_up_to_the_rows(ranks: RankPool) -> None:
    for kind, text, _, _ in ranks(2, outcome_of, bad_exchange, [1, 2], [1, 2], None):
        assert kind is ValueError
        assert "(2,)" in text
        assert "3 rows" in text


@pytest.mark.parametrize(
    "out", [torch.empty(3), torch.empty(2, dtype=torch.int64), torch.empty(4)[::2]]
)
def test_output_must_fit(ranks: RankPool, out: Tensor) -> None:
    for kind, text, _, _ in ranks(2, outcome_of, bad_exchange, [1, 1], [1, 1], out):
        assert kind is ValueError
        assert "out is" in text


def bad_exchange(
    device_mesh: DeviceMesh, send: list[int], recv: list[int], out: Tensor | None
) -> None:
    if out is not None and out.shape == (2,) and out.dtype == torch.float32:
        out = torch.empty(4)[::2]  # pickling makes it contiguous
    start_exchange(torch.ones(2), send, recv, device_mesh, out=out)


# ---- reductions ----


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64, torch.complex128])
def test_sum_over_ranks(ranks: RankPool, n: int, dtype: torch.dtype) -> None:
    parts = [(torch.arange(6).view(2, 3).T + r).to(dtype) for r in range(n)]
    for total in ranks(n, call_with_own, all_reduce_sum, parts):
        assert total.dtype == dtype
        assert torch.equal(total, sum(parts[1:], parts[0]))


@pytest.mark.parametrize("n", SIZES)
def test_sum_of_many_numbers_is_that_of_few(ranks: RankPool, n: int) -> None:
    parts = [torch.arange(5000.0) * 2**r for r in range(n)]  # exact in any order
    for total in ranks(n, call_with_own, all_reduce_sum, parts):
        assert torch.equal(total, sum(parts[1:], parts[0]))


def test_sum_of_nothing_and_of_booleans(ranks: RankPool) -> None:
    assert [x.shape for x in ranks(2, call_with_own, all_reduce_sum, [torch.ones(0, 2)] * 2)] == [
        (0, 2)
    ] * 2
    (first, second) = ranks(2, outcome_of, sum_booleans)
    assert first[:2] == second[:2]
    assert first[0] is TypeError


def sum_booleans(device_mesh: DeviceMesh) -> None:
    all_reduce_sum(torch.ones(2, dtype=torch.bool), device_mesh)


def test_sum_does_not_change_its_input_and_goes_in_pieces(ranks: RankPool) -> None:
    for total, x in ranks(3, sum_in_pieces):
        assert total.tolist() == [3.0] * 7000
        assert x.tolist() == [1.0] * 7000


def sum_in_pieces(device_mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    usual, transport.MAX_ELEMENTS = transport.MAX_ELEMENTS, 3000
    try:
        x = torch.ones(7000)
        return all_reduce_sum(x, device_mesh), x
    finally:
        transport.MAX_ELEMENTS = usual


@pytest.mark.parametrize("n", SIZES)
def test_extreme_integers(ranks: RankPool, n: int) -> None:
    values = [3, -(2**62), 2**62, 0][:n]
    assert ranks(n, call_with_own, all_min, values) == [min(values)] * n
    assert ranks(n, call_with_own, all_max, values) == [max(values)] * n


def norm_gradients(
    device_mesh: DeviceMesh, parts: list[Tensor], a: Tensor
) -> tuple[float, list[Tensor], list[Tensor]]:
    """F = sum_r |a * x_r|^4 summed over ranks, then squared: its first and second derivatives."""
    x = parts[device_mesh.get_local_rank()].requires_grad_()
    a.requires_grad_()
    local = ((replicated(a, device_mesh) * x) ** 4).sum()
    value = all_reduce_sum(local, device_mesh) ** 2
    first = torch.autograd.grad(value, [x, a], create_graph=True)
    # A replicated scalar of both gradients: the part's squares are summed over ranks.
    scalar = all_reduce_sum((first[0] ** 2).sum(), device_mesh) + (first[1] ** 2).sum()
    second = torch.autograd.grad(scalar, [x, a])
    return float(value), [g.detach() for g in first], list(second)


@pytest.mark.parametrize("n", SIZES)
def test_gradients_of_a_global_scalar_are_those_of_one_process(ranks: RankPool, n: int) -> None:
    parts = [torch.rand(r, dtype=torch.float64) for r in range(1, n + 1)]
    a = torch.tensor(1.3, dtype=torch.float64)
    whole = [torch.cat(parts).requires_grad_(), a.clone().requires_grad_()]
    value = ((whole[1] * whole[0]) ** 4).sum() ** 2
    first = torch.autograd.grad(value, whole, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), whole)
    for rank, (f, g, h) in enumerate(ranks(n, norm_gradients, parts, a)):
        assert f == pytest.approx(value.item())
        for ours, theirs in ((g, first), (h, second)):
            mine = theirs[0].detach().split([len(x) for x in parts])[rank]
            assert torch.allclose(ours[0], mine, rtol=1e-12)
            assert torch.allclose(ours[1], theirs[1].detach(), rtol=1e-12)


# ---- gathers ----


@pytest.mark.parametrize("n", SIZES)
def test_integers_of_all_ranks(ranks: RankPool, n: int) -> None:
    values = [[10 * r, -r] for r in range(n)]
    for table in ranks(n, call_with_own, all_gather_ints, values):
        assert table.tolist() == values
        assert table.dtype == torch.int64


@pytest.mark.parametrize("n", SIZES)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_rows_of_all_ranks(ranks: RankPool, n: int, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    dtype = data.draw(st.sampled_from(DTYPES))
    trailing = data.draw(st.sampled_from([(), (2,), (0,)]))
    rows = rows_of([[length] for length in lengths], dtype, trailing)
    for gathered in ranks(n, call_with_own, all_gather_rows, rows):
        assert gathered.dtype == dtype
        assert torch.equal(gathered, torch.cat(rows))


def gather_gradients(
    device_mesh: DeviceMesh, parts: list[Tensor], w: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient of F = w . gather(x)^3, replicated, and of the replicated sum of its squares."""
    x = parts[device_mesh.get_local_rank()].requires_grad_()
    (g,) = torch.autograd.grad(
        (w * all_gather_rows(x, device_mesh) ** 3).sum(), x, create_graph=True
    )
    (h,) = torch.autograd.grad((all_gather_rows(g, device_mesh) ** 2).sum(), x)
    return g.detach(), h


@pytest.mark.parametrize("n", SIZES)
def test_gather_is_differentiable_twice(ranks: RankPool, n: int) -> None:
    parts = [torch.rand(3 - r if r else 1, dtype=torch.float64) for r in range(n)]
    w = torch.rand(sum(map(len, parts)), dtype=torch.float64)
    own = w.split([len(x) for x in parts])
    for rank, (g, h) in enumerate(ranks(n, gather_gradients, parts, w)):
        assert torch.allclose(g, 3 * own[rank] * parts[rank] ** 2)
        assert torch.allclose(h, 36 * own[rank] ** 2 * parts[rank] ** 3)


@pytest.mark.parametrize(
    "rows",
    [
        [torch.ones(2), torch.ones(2, dtype=torch.float64)],
        [torch.ones(2, 3), torch.ones(2, 4)],
        [torch.ones(2), torch.tensor(1.0)],
    ],
)
def test_rows_that_differ_in_kind_raise_on_all_ranks(ranks: RankPool, rows: list[Tensor]) -> None:
    outcomes = ranks(2, outcome_of, call_with_own, all_gather_rows, rows)
    assert [kind for kind, *_ in outcomes] == [ValueError] * 2
    assert "all ranks" in outcomes[0][1]


# ---- broadcasts ----


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast_of_a_tensor(ranks: RankPool, n: int, dtype: torch.dtype) -> None:
    x = rows_of([[3]], dtype, (2,))[0].T
    for received in ranks(n, broadcast_from_last, x):
        assert received.dtype == dtype
        assert torch.equal(received, x)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 1, 3)])
def test_broadcast_keeps_the_shape(ranks: RankPool, shape: tuple[int, ...]) -> None:
    assert [x.shape for x in ranks(2, broadcast_from_last, torch.ones(shape))] == [shape] * 2


def broadcast_from_last(device_mesh: DeviceMesh, x: Tensor | None) -> Tensor:
    last = device_mesh.size() - 1
    return broadcast(x if device_mesh.get_local_rank() == last else None, device_mesh, src=last)


def test_broadcast_of_no_tensor_or_an_exception_raises_everywhere(ranks: RankPool) -> None:
    for kind, message, _, _ in ranks(3, outcome_of, broadcast_from_last, None):
        assert kind is TypeError
        assert "NoneType" in message
    for kind, message, notes, _ in ranks(3, outcome_of, broadcast_from_last, OSError("gone")):
        assert (kind, message, notes) == (OSError, "gone", ["raised on rank 2"])


@pytest.mark.parametrize("n", SIZES)
def test_broadcast_of_an_object(ranks: RankPool, n: int) -> None:
    values = [{"rank": r, "x": None} for r in range(n)]
    assert ranks(n, call_with_own, broadcast_object, values) == [values[0]] * n


def test_broadcast_of_an_object_that_does_not_pickle_raises_everywhere(ranks: RankPool) -> None:
    for kind, message, _, _ in ranks(2, outcome_of, broadcast_generator):
        assert kind is TypeError
        assert "generator" in message


def broadcast_generator(device_mesh: DeviceMesh) -> None:
    broadcast_object((i for i in range(2)), device_mesh)


def test_source_outside_the_mesh_is_refused(ranks: RankPool) -> None:
    assert [kind for kind, *_ in ranks(2, outcome_of, broadcast_object_from, 2)] == [ValueError] * 2


def broadcast_object_from(device_mesh: DeviceMesh, src: int) -> None:
    broadcast_object(0, device_mesh, src)


# ---- agree, then raise ----


class PickyError(Exception):
    """Pickles, but does not unpickle: its constructor wants more than its message."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)


def raise_own(device_mesh: DeviceMesh, errors: dict[int, BaseException]) -> None:
    raise_together(errors.get(device_mesh.get_local_rank()), device_mesh)


def raise_unpicklable(device_mesh: DeviceMesh) -> None:
    error = ValueError(i for i in range(2))
    raise_together(error if device_mesh.get_local_rank() == 1 else None, device_mesh)


def raise_picky(device_mesh: DeviceMesh) -> None:
    rank = device_mesh.get_local_rank()
    raise_together(PickyError("bad", 3) if rank == 1 else None, device_mesh)


@pytest.mark.parametrize("n", SIZES)
def test_nothing_is_raised_if_all_is_well(ranks: RankPool, n: int) -> None:
    assert ranks(n, outcome_of, raise_own, {}) == [None] * n


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_ranks_raise_what_the_lowest_failing_rank_has(ranks: RankPool, n: int) -> None:
    errors = {1: ValueError("bad 1"), 2: KeyError("bad 2")}
    outcomes = ranks(n, outcome_of, raise_own, errors)
    assert [o[:3] for o in outcomes] == [(ValueError, "bad 1", ["raised on rank 1"])] * n
    assert [o[3] for o in outcomes] == [None, None, "'bad 2'", None][:n]


def test_one_rank_raises_its_own_error() -> None:
    error = PickyError("bad", 3)
    with pytest.raises(PickyError) as caught:
        raise_together(error, DeviceMesh("cpu", 0))
    assert caught.value is error


def test_exception_that_does_not_unpickle_becomes_a_runtime_error(ranks: RankPool) -> None:
    outcomes = ranks(3, outcome_of, raise_picky)
    assert {o[:2] for o in outcomes} == {(RuntimeError, "PickyError('bad')")}
    assert [o[3] for o in outcomes] == [None, "bad", None]


def test_exception_that_does_not_pickle_becomes_a_runtime_error(ranks: RankPool) -> None:
    for kind, message, _, _ in ranks(2, outcome_of, raise_unpicklable):
        assert kind is RuntimeError
        assert message.startswith("ValueError(<generator")


def agree_on_exit(device_mesh: DeviceMesh) -> None:
    with agree(device_mesh):
        if device_mesh.get_local_rank() == 1:
            raise SystemExit("reader gave up")


def test_block_is_left_together(ranks: RankPool) -> None:
    outcomes = ranks(3, outcome_of, agree_on_exit)
    assert [o[:2] for o in outcomes] == [(SystemExit, "reader gave up")] * 3
    assert ranks(3, call_with_own, all_min, [1, 2, 3]) == [1] * 3


def functional_gradient(device_mesh: DeviceMesh, x: Tensor) -> Tensor:
    size = device_mesh.size()

    def energy(x: Tensor) -> Tensor:
        moved = exchange(replicated(x, device_mesh), [1] * size, [1] * size, device_mesh)
        gathered = all_gather_rows(moved, device_mesh)
        return all_reduce_sum((moved**2).sum(), device_mesh) + (gathered**2).sum()

    return torch.func.grad(energy)(x)


@pytest.mark.parametrize("n", SIZES)
def test_collectives_compose_with_functional_transforms(ranks: RankPool, n: int) -> None:
    # Every rank holds x and sends x[s] to s, so all moved rows together are n copies of x: the
    # energy is n |x|^2 from the sum over ranks and once more from the gathered rows.
    x = torch.rand(n, dtype=torch.float64)
    for g in ranks(n, functional_gradient, x):
        assert torch.allclose(g, 4 * n * x)


# ---- the edges of a group ----


def test_one_process_without_a_process_group_needs_no_launcher() -> None:
    alone = DeviceMesh("cpu", 0)
    x = torch.rand(3, 2, requires_grad=True)
    assert not dist.is_initialized()
    assert torch.equal(exchange(x, [3], [3], alone), x)
    assert torch.equal(start_exchange(x, [3], [3], alone).wait(), x)
    assert torch.equal(all_gather_rows(x, alone), x)
    assert torch.equal(broadcast(x, alone), x)
    assert (all_min(3, alone), all_max(3, alone)) == (3, 3)
    assert all_gather_ints([4, 5], alone).tolist() == [[4, 5]]
    (g,) = torch.autograd.grad(all_reduce_sum(replicated(x, alone) ** 2, alone).sum(), x)
    assert torch.equal(g, 2 * x)


def test_several_ranks_without_a_process_group_are_refused() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        all_min(3, DeviceMesh("cpu", [0, 1]))


def test_device_mesh_of_two_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="not 1-D"):
        all_min(3, DeviceMesh("cpu", [[0]]))


def test_rank_outside_the_device_mesh_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"rank 0 is not in .* \[1\]"):
        all_min(3, DeviceMesh("cpu", 1))


def late_rank(device_mesh: DeviceMesh, operation: str) -> Any:
    """One rank stays away; the others' group has a timeout of half a second."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=0.5))
    short = DeviceMesh.from_group(group, "cpu")
    one = torch.ones(4)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: all_reduce_sum(one, short),
        "all_to_all": lambda: exchange(one, [1] * 4, [1] * 4, short),
        "all_gather": lambda: all_gather_ints([1], short),
        "broadcast": lambda: broadcast_object(1, short, src=2),
    }
    if device_mesh.get_local_rank() == 2:
        return None
    try:
        calls[operation]()
    except CollectiveError as error:
        return str(error)


@pytest.mark.parametrize("operation", ["all_reduce", "all_to_all", "all_gather", "broadcast"])
def test_timeout_names_operation_group_and_rank(ranks: RankPool, operation: str) -> None:
    """device-mesh Beyond | time-out: an error that names operation, group and rank."""
    messages = ranks(4, late_rank, operation)
    for rank in (0, 1, 3):
        assert f"{operation} failed on rank {rank}" in messages[rank]
        assert "[0, 1, 2, 3]" in messages[rank]
    assert any("ime" in messages[rank] for rank in (0, 1, 3))


def unsorted_mesh(device_mesh: DeviceMesh) -> Any:
    """Collectives over a mesh whose order is not that of the global ranks."""
    mesh = DeviceMesh("cpu", [2, 0, 3, 1])
    rank = device_mesh.get_rank()
    table = all_gather_ints([rank], mesh).flatten().tolist()
    received = exchange(torch.tensor([rank * 10 + i for i in range(4)]), [1] * 4, [1] * 4, mesh)
    shared = broadcast_object(rank, mesh, src=2)
    return mesh.get_local_rank(), table, received.tolist(), shared


def test_ranks_count_along_the_mesh_in_any_order(ranks: RankPool) -> None:
    order = [2, 0, 3, 1]
    for rank, (local, table, received, shared) in enumerate(ranks(4, unsorted_mesh)):
        assert order[local] == rank
        assert table == order
        assert received == [10 * sender + local for sender in order]
        assert shared == 3
