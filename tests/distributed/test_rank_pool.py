"""The pool of live ranks itself: every way to fail ends with a report, and the pool goes on."""

import os
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist

from tensormesh.distributed.device_mesh import DeviceMesh
from tests.rank_pool import RankError, RankPool


def rank_of(device_mesh: DeviceMesh, offset: int) -> int:
    return device_mesh.get_local_rank() + offset


def total(device_mesh: DeviceMesh) -> float:
    x = torch.tensor(float(device_mesh.get_local_rank()))
    dist.all_reduce(x, group=device_mesh.get_group())
    return x.item()


def world_of(device_mesh: DeviceMesh) -> tuple[int, int, int]:
    return dist.get_world_size(), device_mesh.size(), torch.get_num_threads()


def fail_everywhere(device_mesh: DeviceMesh) -> None:
    raise ValueError(f"bad {device_mesh.get_local_rank()}")


def fail_on_one(device_mesh: DeviceMesh) -> None:
    if device_mesh.get_local_rank() == 2:
        raise KeyError("boom")
    dist.all_reduce(torch.ones(1), group=device_mesh.get_group())


def use_default_group(device_mesh: DeviceMesh) -> None:
    dist.all_reduce(torch.ones(1))


def die_on_one(device_mesh: DeviceMesh) -> None:
    if device_mesh.get_local_rank() == 1:
        os._exit(7)


def exit_on_one(device_mesh: DeviceMesh) -> None:
    if device_mesh.get_local_rank() == 1:
        raise SystemExit("left")


def return_generator(device_mesh: DeviceMesh) -> object:
    return (i for i in range(3))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_values_come_in_rank_order(ranks: RankPool, n: int) -> None:
    assert ranks(n, rank_of, 10) == list(range(10, 10 + n))


def test_ranks_form_a_submesh_of_a_larger_world(ranks: RankPool) -> None:
    assert ranks(3, world_of) == [(4, 3, 1)] * 3


def test_partial_of_a_module_level_function_runs(ranks: RankPool) -> None:
    assert ranks(2, partial(rank_of, offset=5)) == [5, 6]


def test_tensors_travel_both_ways(ranks: RankPool) -> None:
    x = torch.arange(3.0)
    assert all(torch.equal(y, x) for y in ranks(2, echo, x))


def echo(device_mesh: DeviceMesh, x: torch.Tensor) -> torch.Tensor:
    return x


def test_function_that_ranks_cannot_import_is_refused(ranks: RankPool) -> None:
    def inner(device_mesh: DeviceMesh) -> None: ...

    with pytest.raises(TypeError, match="inner to the top level"):
        ranks(2, inner)
    with pytest.raises(TypeError, match="lambda"):
        ranks(2, lambda device_mesh: 0)


def test_argument_that_does_not_pickle_is_refused(ranks: RankPool) -> None:
    with pytest.raises(TypeError, match="do not pickle"):
        ranks(2, echo, (i for i in range(3)))


def test_number_of_ranks_is_checked(ranks: RankPool) -> None:
    with pytest.raises(ValueError, match="n = 5"):
        ranks(5, echo, 0)


def test_result_that_does_not_pickle_is_reported(ranks: RankPool) -> None:
    with pytest.raises(RankError, match=r"generator.*does not pickle"):
        ranks(2, return_generator)


def test_each_failing_rank_shows_its_traceback_and_the_pool_survives(ranks: RankPool) -> None:
    before = ranks(4, process_id)
    with pytest.raises(RankError) as failure:
        ranks(3, fail_everywhere)
    for rank in range(3):
        assert f"ValueError: bad {rank}" in failure.value.reports[rank]
        assert "in fail_everywhere" in failure.value.reports[rank]
    assert ranks(4, process_id) == before


def process_id(device_mesh: DeviceMesh) -> int:
    return os.getpid()


def test_system_exit_on_one_rank_is_a_report(ranks: RankPool) -> None:
    with pytest.raises(RankError) as failure:
        ranks(2, exit_on_one)
    assert list(failure.value.reports) == [1]
    assert "SystemExit: left" in failure.value.reports[1]


def test_failure_on_one_rank_shows_where_the_others_wait(ranks: RankPool) -> None:
    start = time.monotonic()
    with pytest.raises(RankError) as failure:
        ranks(4, fail_on_one)
    assert time.monotonic() - start < 30  # not the deadline of 60
    assert "KeyError: 'boom'" in failure.value.reports[2]
    assert "fail_on_one" in failure.value.reports[0]
    assert "all_reduce" in failure.value.reports[0]
    assert ranks(4, total) == [6.0] * 4


def test_hang_ends_at_the_deadline_with_stacks(ranks: RankPool) -> None:
    with pytest.raises(RankError) as failure:
        ranks(2, use_default_group, timeout=1.0)
    assert set(failure.value.reports) == {0, 1}
    assert all("in use_default_group" in report for report in failure.value.reports.values())
    assert ranks(3, total) == [3.0] * 3


def test_death_is_reported(ranks: RankPool) -> None:
    with pytest.raises(RankError, match="died with exit code 7") as failure:
        ranks(2, die_on_one)
    assert list(failure.value.reports) == [1]
    assert ranks(2, total) == [1.0] * 2
