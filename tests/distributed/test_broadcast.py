"""A tensor from rank 0, in a job and without one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tensormesh.distributed.broadcast import broadcast_from_rank0
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.rank_pool import RankPool


class Factory:
    """Makes a tensor that says which rank made it, or fails."""

    def __init__(self, error: BaseException | None = None, value: Any = None) -> None:
        self.error, self.value = error, value
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.value


def run(device_mesh: DeviceMesh, factory: Factory) -> tuple[Tensor, int]:
    return broadcast_from_rank0(factory, device_mesh=device_mesh), factory.calls


def run_on_torch_mesh(device_mesh: DeviceMesh, factory: Factory) -> tuple[Tensor, int]:
    return broadcast_from_rank0(factory, device_mesh=device_mesh.to_torch()), factory.calls


def run_on_world(device_mesh: DeviceMesh, factory: Factory) -> tuple[Tensor, int]:
    return broadcast_from_rank0(factory), factory.calls


def outcome(device_mesh: DeviceMesh, factory: Factory) -> tuple[type, str]:
    try:
        run(device_mesh, factory)
    except BaseException as error:
        return type(error), str(error)
    return type(None), ""


@pytest.mark.parametrize("call", [run, run_on_torch_mesh])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_factory_runs_on_rank_0_only(ranks: RankPool, n: int, call: Any) -> None:
    """distributed-api broadcast_from_rank0 | `factory()`: on rank 0 only, its tensor on all.

    features | broadcast_from_rank0: distributed.
    """
    x = torch.arange(6, dtype=torch.int16).view(2, 3)
    for rank, (received, calls) in enumerate(ranks(n, call, Factory(value=x))):
        assert torch.equal(received, x)
        assert received.dtype == x.dtype
        assert calls == (1 if rank == 0 else 0)


def test_default_is_the_world(ranks: RankPool) -> None:
    """distributed-api broadcast_from_rank0 | `device_mesh=`: default all ranks."""
    answers = ranks(4, run_on_world, Factory(value=torch.ones(2)))
    assert [(x.tolist(), calls) for x, calls in answers] == [
        ([1.0, 1.0], int(rank == 0)) for rank in range(4)
    ]


@pytest.mark.parametrize("error", [ValueError("bad file"), SystemExit("reader gave up")])
def test_exception_in_the_factory_is_raised_on_every_rank(
    ranks: RankPool, error: BaseException
) -> None:
    """distributed-api broadcast_from_rank0 | an exception is raised on every rank."""
    assert ranks(3, outcome, Factory(error=error)) == [(type(error), str(error))] * 3


def test_result_that_is_no_tensor_is_refused_on_every_rank(ranks: RankPool) -> None:
    for kind, message in ranks(2, outcome, Factory(value=[1, 2])):
        assert kind is TypeError
        assert "list" in message


def test_without_a_process_group_it_is_the_factory() -> None:
    """distributed-api broadcast_from_rank0 | no group: it is `factory()`.

    features | broadcast_from_rank0: serial.
    """
    x = torch.ones(3)
    assert broadcast_from_rank0(lambda: x) is x
    assert broadcast_from_rank0(lambda: x, dst_device="meta").device.type == "meta"


def to_meta(device_mesh: DeviceMesh, x: Tensor) -> tuple[str, int]:
    received = broadcast_from_rank0(lambda: x, dst_device="meta", device_mesh=device_mesh)
    return received.device.type, received.numel()


def test_placement_can_be_chosen(ranks: RankPool) -> None:
    """distributed-api broadcast_from_rank0 | `dst_device`: where the result is placed."""
    assert ranks(2, to_meta, torch.ones(3)) == [("meta", 3)] * 2
