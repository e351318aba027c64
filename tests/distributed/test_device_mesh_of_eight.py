"""DeviceMesh on eight ranks, where three dimensions of two are a real cube."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings

from tensormesh.distributed.collectives import all_gather_ints, all_reduce_sum
from tensormesh.distributed.device_mesh import DeviceMesh, init_device_mesh
from tests.distributed.test_device_mesh import check_layout, layouts
from tests.rank_pool import RankPool


@pytest.mark.parametrize(
    ("shape", "selections"),
    [
        ((2, 2, 2), [("a", "c"), ("c", "a")]),
        ((2, 2, 2), [("b",), ("b", "c")]),
        ((2, 4), [("a",), ("b", "a")]),
        ((8,), [("a",)]),
    ],
)
def test_slices_of_the_whole_world(
    ranks8: RankPool, shape: tuple[int, ...], selections: list[tuple[str, ...]]
) -> None:
    """device-mesh members | `mesh[name]`: slices of eight ranks."""
    check_layout(ranks8, 8, np.arange(8).reshape(shape), selections)


@settings(deadline=None, max_examples=15)
@given(layout=layouts(8))
def test_coordinates_slices_and_groups_are_index_arithmetic(
    ranks8: RankPool, layout: tuple[np.ndarray, list[tuple[str, ...]]]
) -> None:
    check_layout(ranks8, 8, *layout)


def two_problems(device_mesh: DeviceMesh) -> tuple[list[int], float, float]:
    """Two jobs of four ranks side by side, and the mean over them."""
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replica", "domain"))
    replica = mesh.get_local_rank("replica")
    own = torch.tensor(float(mesh.get_local_rank("domain") + 100 * replica))
    domain_sum = all_reduce_sum(own, mesh["domain"])
    mean = all_reduce_sum(domain_sum, mesh["replica"]) / mesh.size("replica")
    members = all_gather_ints([dist.get_rank()], mesh["domain"]).flatten().tolist()
    return members, float(domain_sum), float(mean)


def test_two_problems_run_side_by_side(ranks8: RankPool) -> None:
    """device-mesh Beyond | 2-D jobs: two sums side by side on eight ranks."""
    for rank, answer in enumerate(ranks8(8, two_problems)):
        first = rank - rank % 4
        assert answer == (list(range(first, first + 4)), 6.0 if rank < 4 else 406.0, 206.0)
