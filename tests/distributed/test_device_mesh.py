"""DeviceMesh, row by row of what it promises, against index arithmetic and torch's own mesh."""

import itertools
import math
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh
from torch.distributed.device_mesh import init_device_mesh as torch_init_device_mesh

from tensormesh.distributed.collectives import all_gather_ints, broadcast_object
from tensormesh.distributed.device_mesh import (
    DeviceMesh,
    as_device_mesh,
    current_device_mesh,
    default_device_mesh,
    init_device_mesh,
    rank_device,
)
from tests.rank_pool import RankPool

GRID = [[0, 1], [2, 3]]
NAMES = ("dp", "tp")


def grid(names: tuple[str, ...] | None = NAMES) -> DeviceMesh:
    return DeviceMesh("cpu", GRID, mesh_dim_names=names)


def cube() -> DeviceMesh:
    return DeviceMesh("cpu", [[[0, 1], [2, 3]]], mesh_dim_names=("pp", "dp", "tp"))


def ranks_of(group: dist.ProcessGroup) -> list[int]:
    return dist.get_process_group_ranks(group)


@pytest.fixture
def job() -> Iterator[Callable[[], None]]:
    """A job of this process alone; the function handed out ends it and begins another."""

    def begin() -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    begin()
    yield begin
    dist.destroy_process_group()


# ---- init_device_mesh ----


def init_outcome(
    device_mesh: DeviceMesh, device_type: Any, shape: Any, names: Any = None, override: Any = None
) -> tuple[type, str]:
    try:
        mesh = init_device_mesh(device_type, shape, mesh_dim_names=names, backend_override=override)
    except Exception as error:
        return type(error), str(error)
    return type(mesh), repr(mesh)


@pytest.mark.parametrize(
    ("args", "error", "parts"),
    [
        (("cpu", (2, 2), ("a", "a")), RuntimeError, ["('a', 'a')"]),
        (("cpu", (2, 2), ("a",)), RuntimeError, ["2 dimensions", "1 names"]),
        (("", (4,)), RuntimeError, ["device.type"]),
        ((torch.device("cpu"), (4,)), RuntimeError, ["device.type"]),
        (("cuda:0", (4,)), RuntimeError, ["device.type", "cuda:0"]),
        (("cpu", ()), ValueError, ["empty"]),
        (("cpu", 4), ValueError, ["tuple"]),
        (("cpu", (2.0, 2)), ValueError, ["2.0"]),
        (("cpu", (True, 4)), ValueError, ["True"]),
        (("cpu", (0, 4)), ValueError, ["0"]),
        (("cpu", (-2, -2)), ValueError, ["-2"]),
        (("cpu", (3,)), RuntimeError, ["3 ranks", "has 4"]),
        (("cpu", (2, 4)), RuntimeError, ["8 ranks", "has 4"]),
        (("cpu", (2, 2), None, {2: "gloo"}), ValueError, ["key 2"]),
        (("cpu", (2, 2), NAMES, {"pp": "gloo"}), ValueError, ["'pp'"]),
        (("cpu", (2, 2), NAMES, {"dp": "gloo", 0: "gloo"}), ValueError, ["key 0"]),
    ],
)
def test_wrong_input_to_init_device_mesh(
    ranks: RankPool, args: tuple[Any, ...], error: type, parts: list[str]
) -> None:
    """device-mesh init_device_mesh | errors: names, lengths, types, sizes, world size.
    device-mesh members | `backend_override`: unknown and repeated keys.
    """
    for kind, message in ranks(4, init_outcome, *args):
        assert kind is error
        for part in parts:
            assert part in message


def test_init_device_mesh_is_row_major_over_the_world(ranks: RankPool) -> None:
    """device-mesh init_device_mesh | row-major over the world.

    features | init_device_mesh: distributed.
    """
    assert (
        ranks(4, init_outcome, "cpu", (2, 2), NAMES)
        == [(DeviceMesh, "DeviceMesh(dp=2, tp=2, 'cpu')")] * 4
    )
    assert ranks(4, init_coordinates, (2, 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def init_coordinates(device_mesh: DeviceMesh, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return init_device_mesh("cpu", shape).get_coordinate()


def test_init_device_mesh_needs_a_process_group() -> None:
    """device-mesh init_device_mesh | not initialised: `RuntimeError` that says so."""
    with pytest.raises(RuntimeError, match="init_process_group"):
        init_device_mesh("cpu", (1,))


# ---- the constructor ----


@pytest.mark.parametrize(
    ("mesh", "shape"),
    [
        (0, (1,)),
        ([0, 1], (2,)),
        (((0, 1), (2, 3)), (2, 2)),
        (torch.tensor([[[3], [1]]], dtype=torch.int32), (1, 2, 1)),
        (np.arange(6).reshape(2, 3), (2, 3)),
    ],
)
def test_ranks_are_given_in_any_nested_form(mesh: Any, shape: tuple[int, ...]) -> None:
    """device-mesh DeviceMesh | `mesh`: int, nested list or tuple, integer tensor."""
    device_mesh = DeviceMesh("cpu", mesh)
    assert device_mesh.shape == shape
    assert device_mesh.mesh.dtype == torch.int64
    assert np.array_equal(device_mesh.mesh.numpy(), np.asarray(mesh).reshape(shape))


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ([[0, 1], [2]], "ragged"),
        ([[0, 1], 2], "ragged"),
        ([], "size 0"),
        ([[], []], "size 0"),
        ([0, -1], "-1"),
        ([0, 1.0], "1.0"),
        (torch.tensor([0.0, 1.0]), "0.0"),
        ([False, True], "False"),
        ("01", "'01'"),
        ([0, 1, 1], r"\[1\]"),
    ],
)
def test_wrong_ranks(mesh: Any, message: str) -> None:
    """device-mesh DeviceMesh | ranks: ragged, negative, repeated, no integers."""
    with pytest.raises(ValueError, match=message):
        DeviceMesh("cpu", mesh)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((2, 0), "0"), ((2, -2), "-2"), ((), "empty"), ((2, 3), r"4 ranks.*ask for 6")],
)
def test_wrong_sizes(sizes: tuple[int, ...], message: str) -> None:
    """device-mesh DeviceMesh | sizes: not positive, or other than the rank map."""
    with pytest.raises(ValueError, match=message):
        DeviceMesh("cpu", _rank_map=range(4), _sizes=sizes)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"_rank_map": [0]},
        {"_sizes": [1]},
        {"mesh": [0], "_rank_map": [0], "_sizes": [1]},
        {"mesh": [0], "_sizes": [1]},
    ],
)
def test_ranks_are_given_in_exactly_one_way(given: dict[str, Any]) -> None:
    """device-mesh DeviceMesh | neither or both of `mesh` and internal fields: `TypeError`."""
    with pytest.raises(TypeError, match="mesh"):
        DeviceMesh("cpu", **given)


@pytest.mark.parametrize("names", [("a", "a"), ("a",), ("a", "b", "c"), "ab", (0, 1)])
def test_wrong_names(names: Any) -> None:
    """device-mesh DeviceMesh | dim names: repeated, or of the wrong number."""
    with pytest.raises(ValueError, match="mesh_dim_names"):
        grid(names)


@pytest.mark.parametrize("device_type", ["", "cpu:0", None, torch.device("cpu")])
def test_wrong_device_type(device_type: Any) -> None:
    """device-mesh DeviceMesh | `device_type`: a type without an index."""
    with pytest.raises(RuntimeError, match=r"device\.type"):
        DeviceMesh(device_type, [0])


# ---- what a mesh says without a process group ----


def test_sizes() -> None:
    """device-mesh members | `shape`, `ndim`, `ndimension`, `numel()`, `size()`."""
    mesh = DeviceMesh("cpu", np.arange(6).reshape(2, 3), mesh_dim_names=NAMES)
    assert (mesh.device_type, mesh.mesh_dim_names) == ("cpu", NAMES)
    assert (mesh.shape, mesh.ndim, mesh.ndimension(), mesh.numel()) == ((2, 3), 2, 2, 6)
    assert [mesh.size(), mesh.size(0), mesh.size("tp"), mesh.size(-1)] == [6, 2, 3, 3]


@pytest.mark.parametrize(
    ("dim", "error"), [(2, IndexError), (-3, IndexError), ("pp", KeyError), (True, TypeError)]
)
@pytest.mark.parametrize("method", ["size", "get_local_rank", "get_group"])
def test_dimension_that_is_absent(method: str, dim: Any, error: type[Exception]) -> None:
    """device-mesh members | `size(mesh_dim)` and others: `IndexError`, `KeyError` if absent."""
    with pytest.raises(error, match="mesh_dim"):
        getattr(grid(), method)(dim)


def test_without_a_process_group_the_process_is_rank_0() -> None:
    """device-mesh members | without a process group: rank 0; only `get_group` needs one.

    features | DeviceMesh: serial.
    """
    mesh = DeviceMesh("cpu", [[3, 1], [0, 2]], mesh_dim_names=NAMES)
    assert mesh.get_rank() == 0
    assert mesh.get_coordinate() == (1, 0)
    assert (mesh.get_local_rank("dp"), mesh.get_local_rank(1)) == (1, 0)
    assert mesh["tp"].mesh.tolist() == [0, 2]
    assert mesh["tp"].get_local_rank() == 0
    for ask in (lambda: mesh.get_group("dp"), mesh.get_all_groups, mesh.to_torch):
        with pytest.raises(RuntimeError, match="init_process_group"):
            ask()


def test_rank_outside_the_mesh() -> None:
    """device-mesh members | `get_coordinate()`: `None` outside the mesh.
    device-mesh members | `get_local_rank()`: `RuntimeError` outside the mesh.
    """
    mesh = DeviceMesh("cpu", [1, 2])
    assert mesh.get_coordinate() is None
    with pytest.raises(RuntimeError, match=r"rank 0 is not in .*\[1, 2\]"):
        mesh.get_local_rank()


@pytest.mark.parametrize("method", ["get_local_rank", "get_group"])
def test_dimension_must_be_named_unless_there_is_one(method: str) -> None:
    """device-mesh members | `get_group()`, `get_local_rank()`: without an argument only for 1-D."""
    with pytest.raises(RuntimeError, match="2 dimensions"):
        getattr(grid(), method)()


def test_representation() -> None:
    """device-mesh members | `repr`: with and without names."""
    assert repr(grid()) == "DeviceMesh(dp=2, tp=2, 'cpu')"
    assert repr(DeviceMesh("cuda", GRID)) == "DeviceMesh((2, 2), 'cuda')"


def test_equality_by_ranks_sizes_type_and_names() -> None:
    """device-mesh members | `==`, `hash`: by ranks, sizes, device type and names."""
    assert grid() == grid()
    assert hash(grid()) == hash(grid())
    others: list[object] = [
        DeviceMesh("cuda", GRID, mesh_dim_names=NAMES),
        grid(None),
        grid(("tp", "dp")),
        DeviceMesh("cpu", [[0, 1], [3, 2]], mesh_dim_names=NAMES),
        DeviceMesh("cpu", [[0, 1, 2, 3]], mesh_dim_names=NAMES),
        "mesh",
    ]
    for other in others:
        assert grid() != other
    assert DeviceMesh("cpu", [0, 1], mesh_dim_names=("tp",)) == grid()["tp"]


def test_pickle_keeps_the_mesh_and_the_tie_to_its_root() -> None:
    """device-mesh members | `pickle`: drops the groups."""
    mesh = grid()
    mesh._flatten("world")
    copy, sub = pickle.loads(pickle.dumps((mesh, mesh["tp"])))
    assert copy == mesh
    assert sub == mesh["tp"]
    assert sub._root is copy
    assert copy["world"].mesh.tolist() == [0, 1, 2, 3]


def test_current_mesh_nests_and_is_of_one_thread() -> None:
    """device-mesh members | `with mesh:`: the current mesh of this thread; nests."""
    outer, inner = grid(), cube()
    seen = []
    assert current_device_mesh() is None
    with outer as entered:
        assert entered is outer
        with inner:
            assert current_device_mesh() is inner
            thread = threading.Thread(target=lambda: seen.append(current_device_mesh()))
            thread.start()
            thread.join()
        assert current_device_mesh() is outer
        with pytest.raises(KeyError), inner:
            raise KeyError
        assert current_device_mesh() is outer
    assert current_device_mesh() is None
    assert seen == [None]


# ---- slicing, flattening, concatenating: structure ----


def test_all_dimensions_in_order_are_the_mesh_itself() -> None:
    """device-mesh members | `mesh[name]`: all dims in order are the mesh itself."""
    mesh = grid()
    assert mesh["dp", "tp"] is mesh
    assert mesh["tp", "dp"].mesh.tolist() == [[0, 2], [1, 3]]
    assert mesh["tp", "dp"].mesh_dim_names == ("tp", "dp")
    line = DeviceMesh("cpu", [0, 1], mesh_dim_names=("x",))
    assert line["x"] is line


@pytest.mark.parametrize(
    ("names", "error"),
    [((), ValueError), (("dp", "dp"), ValueError), ("pp", KeyError), (("dp", "pp"), KeyError)],
)
def test_wrong_selection(names: Any, error: type[Exception]) -> None:
    """device-mesh members | `mesh[name]`: none, repeated, unknown."""
    with pytest.raises(error):
        grid()[names]


def test_mesh_without_names_cannot_be_sliced_flattened_or_concatenated() -> None:
    """device-mesh members | `mesh[name]`, `_flatten`, `_concatenate`: need names."""
    mesh = grid(None)
    for ask in (
        lambda: mesh["dp"],
        mesh._flatten,
        lambda: DeviceMesh._concatenate([mesh]),
    ):
        with pytest.raises(RuntimeError, match="no mesh_dim_names"):
            ask()


def test_flattened_dimension_is_found_from_the_root_and_its_submeshes() -> None:
    """device-mesh members | `_flatten`: registered on the root."""
    root = cube()
    flat = root["dp", "tp"]._flatten()
    assert flat.mesh.tolist() == [0, 1, 2, 3]
    assert flat.mesh_dim_names == ("dp_tp",)
    assert root["dp_tp"] is flat
    assert root["pp"]["dp_tp"] is flat
    assert root["pp", "dp_tp"].shape == (1, 4)
    assert root["dp", "tp"]._flatten("dp_tp") is flat
    assert root["pp", "dp_tp"]._flatten("all").mesh.tolist() == [0, 1, 2, 3]
    assert flat["dp_tp"] is flat


def test_flattening_follows_the_order_of_the_dimensions() -> None:
    assert grid()["tp", "dp"]._flatten().mesh.tolist() == [0, 2, 1, 3]


def test_one_dimension_flattened_to_its_own_name_is_itself() -> None:
    """device-mesh members | `_flatten`: 1-D to its own name is itself."""
    root = grid()
    line = root["dp"]
    assert line._flatten() is line
    assert line._flatten("dp") is line
    assert line._flatten("alias").mesh.tolist() == line.mesh.tolist()
    assert root["alias"].mesh_dim_names == ("alias",)


def test_name_of_a_flattened_dimension_is_taken_once() -> None:
    """device-mesh members | `_flatten`: same name and layout, the same object."""
    root = cube()
    root["dp", "tp"]._flatten("x")
    with pytest.raises(ValueError, match="'x' already"):
        root["pp", "dp"]._flatten("x")
    with pytest.raises(ValueError, match="'x' already"):
        root["tp", "dp"]._flatten("x")
    with pytest.raises(ValueError, match="has a dimension of that name"):
        root["dp", "tp"]._flatten("pp")


def test_overlapping_dimensions_cannot_be_selected_together() -> None:
    root = cube()
    root["dp", "tp"]._flatten("x")
    with pytest.raises(ValueError, match="share a dimension"):
        root["dp", "x"]


def test_concatenation_has_the_dimensions_of_its_parts() -> None:
    """device-mesh members | `_concatenate`: the dims of the parts."""
    root = cube()
    both = DeviceMesh._concatenate([root["tp"], root["pp"]])
    assert both.mesh_dim_names == ("tp", "pp")
    assert both.mesh.tolist() == [[0], [1]]
    assert DeviceMesh._concatenate([root["pp"], root["dp", "tp"]]) is root
    flat = root["dp", "tp"]._flatten()
    assert DeviceMesh._concatenate([flat, root["pp"]]).shape == (4, 1)


def test_wrong_parts_of_a_concatenation() -> None:
    """device-mesh members | `_concatenate`: each violation is an error."""
    root = cube()
    flat = root["dp", "tp"]._flatten()
    cuda = DeviceMesh("cuda", [0, 1], mesh_dim_names=("x",))
    for parts, message in [
        ([], "empty"),
        ([root["dp"], cube()["tp"]], "one root"),
        ([root["dp"], root["dp"]], "repeat"),
        ([root["dp"], flat], "share a dimension"),
        ([root["dp"], cuda], "device types"),
    ]:
        with pytest.raises(ValueError, match=message):
            DeviceMesh._concatenate(parts)


# ---- index arithmetic, on live ranks ----


def sub_facts(mesh: DeviceMesh) -> dict[str, Any]:
    """All that a mesh says on this rank, its groups put to use."""
    facts: dict[str, Any] = {"mesh": mesh.mesh.tolist(), "coordinate": mesh.get_coordinate()}
    facts["groups"] = [group_facts(mesh, dim) for dim in range(mesh.ndim)]
    return facts


def group_facts(mesh: DeviceMesh, dim: int) -> tuple[list[int], int] | None:
    """Ranks of the group and the sum of their numbers; None outside the mesh."""
    try:
        group = mesh.get_group(dim)
    except RuntimeError:
        return None
    total = torch.tensor(mesh.get_rank())
    dist.all_reduce(total, group=group)
    return ranks_of(group), int(total)


def facts_of(
    device_mesh: DeviceMesh, nested: Any, selections: list[tuple[str, ...]]
) -> list[dict[str, Any]]:
    names = "abc"[: np.ndim(nested)]
    root = DeviceMesh("cpu", nested, mesh_dim_names=tuple(names))
    meshes = [root, *(root[selection] for selection in selections)]
    meshes += [mesh._flatten("_" + "_".join(mesh.mesh_dim_names or ())) for mesh in meshes[1:]]
    facts = [sub_facts(mesh) for mesh in meshes]
    for group in set(root._registry._groups.values()) - {None}:
        dist.destroy_process_group(group)
    return facts


def expected_facts(array: np.ndarray, rank: int) -> dict[str, Any]:
    """By plain indexing: where a rank is, and which ranks share its lines."""
    place = np.argwhere(array == rank)
    coordinate = tuple(int(i) for i in place[0]) if len(place) else None
    groups: list[Any] = [None] * array.ndim
    if coordinate is not None:
        for dim in range(array.ndim):
            index: list[Any] = list(coordinate)
            index[dim] = slice(None)
            line = array[tuple(index)].tolist()
            groups[dim] = (line, sum(line))
    return {"mesh": array.tolist(), "coordinate": coordinate, "groups": groups}


def expected_slice(array: np.ndarray, dims: list[int], rank: int) -> np.ndarray:
    """Sub-array through a rank along some axes; the first one for a rank outside."""
    place = np.argwhere(array == rank)
    index: list[Any] = list(place[0]) if len(place) else [0] * array.ndim
    for dim in dims:
        index[dim] = slice(None)
    left = sorted(dims)
    return array[tuple(index)].transpose([left.index(dim) for dim in dims])


@st.composite
def layouts(draw: st.DrawFn, world: int) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """Some ranks of the world in some shape and order, and two selections of dimensions."""
    shapes = [
        shape
        for ndim in (1, 2, 3)
        for shape in itertools.product(range(1, world + 1), repeat=ndim)
        if math.prod(shape) <= world
    ]
    shape = draw(st.sampled_from(shapes))
    order = draw(st.permutations(range(world)))
    names = "abc"[: len(shape)]
    selection = st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)
    array = np.array(order[: math.prod(shape)]).reshape(shape)
    return array, draw(st.lists(selection, min_size=1, max_size=2, unique=True))


def check_layout(
    pool: RankPool, world: int, array: np.ndarray, selections: list[tuple[str, ...]]
) -> None:
    """Compare what all ranks say with plain indexing."""
    for rank, facts in enumerate(pool(world, facts_of, array.tolist(), selections)):
        slices = [
            expected_slice(array, ["abc".index(name) for name in selection], rank)
            for selection in selections
        ]
        arrays = [array, *slices, *(part.reshape(-1) for part in slices)]
        assert facts == [expected_facts(part, rank) for part in arrays]


@settings(deadline=None, max_examples=30)
@given(layout=layouts(4))
def test_coordinates_slices_and_groups_are_index_arithmetic(
    ranks: RankPool, layout: tuple[np.ndarray, list[tuple[str, ...]]]
) -> None:
    """device-mesh members | `get_coordinate()`, slices, groups: index arithmetic.
    device-mesh members | `get_all_groups()`: one a dim.

    features | DeviceMesh: distributed.
    """
    check_layout(ranks, 4, *layout)


def both_meshes(
    device_mesh: DeviceMesh, shape: tuple[int, ...], selection: tuple[str, ...]
) -> list[list[Any]]:
    """The same facts from torch's mesh and from ours."""
    names = tuple("abc"[: len(shape)])
    answers = []
    for init in (torch_init_device_mesh, init_device_mesh):
        root: Any = init("cpu", shape, mesh_dim_names=names)
        part = root[selection]
        flat = root._flatten("all")
        answers.append(
            [
                *(tuple(m.get_coordinate()) for m in (root, part, flat)),
                *(m.mesh.tolist() for m in (root, part, flat)),
                *(tuple(m.shape) for m in (root, part, flat)),
                [part.get_local_rank(name) for name in selection],
                [root.size(dim) for dim in range(root.ndim)],
                [ranks_of(group) for m in (root, part, flat) for group in m.get_all_groups()],
            ]
        )
    return answers


@pytest.mark.parametrize(
    ("shape", "selection"),
    [
        ((4,), ("a",)),
        ((2, 2), ("b",)),
        ((2, 2), ("a", "b")),
        ((2, 1, 2), ("a", "c")),
        ((1, 2, 2), ("b", "c")),
        ((1, 4), ("a",)),
    ],
)
def test_same_answers_as_torch(
    ranks: RankPool, shape: tuple[int, ...], selection: tuple[str, ...]
) -> None:
    """device-mesh members | `shape`, coordinates, slices: as torch's own mesh on random shapes."""
    for theirs, ours in ranks(4, both_meshes, shape, selection):
        assert ours == theirs


# ---- groups ----


def sharing(device_mesh: DeviceMesh) -> dict[str, bool]:
    count = lambda: dist.distributed_c10d._world.group_count  # noqa: E731
    before = count()
    root = grid()
    lazy = count() == before
    group = root["dp"].get_group()
    made = count() - before
    again = [root.get_group("dp"), root.get_group(0), root["tp", "dp"].get_group("dp")]
    flat = root._flatten()
    joined = DeviceMesh._concatenate([root["tp"], root["dp"]])
    groups = root.get_all_groups()
    return {
        "nothing is made before the first use": lazy,
        "all lines are made": made == 2,
        "a second call makes nothing": count() == before + 4,
        "sub-meshes share": all(other is group for other in again),
        "one a dimension": [ranks_of(g) for g in groups]
        == [ranks_of(root.get_group(name)) for name in NAMES],
        "concatenation keeps groups": joined.get_all_groups() == [groups[1], groups[0]],
        "flattened group is found by name": flat.get_group() is root["dp_tp"].get_group(),
        "an equal mesh has its own": grid().get_group("dp") is not group,
        "a pickled mesh has its own": pickle.loads(pickle.dumps(root)).get_group(0) is not group,
        "a pickled mesh has the same ranks": ranks_of(
            pickle.loads(pickle.dumps(root["dp"])).get_group()
        )
        == ranks_of(group),
    }


def test_groups_are_lazy_and_shared(ranks: RankPool) -> None:
    """device-mesh members | groups are lazy, collective, and shared with the root."""
    for facts in ranks(4, sharing):
        assert [fact for fact, holds in facts.items() if not holds] == []


def timeouts(device_mesh: DeviceMesh) -> list[float]:
    groups: list[Any] = [dist.group.WORLD, grid().get_group("dp"), grid()._flatten().get_group()]
    device = torch.device("cpu")
    return [group._get_backend(device).options._timeout.total_seconds() for group in groups]


def test_groups_have_the_timeout_of_the_job(ranks: RankPool) -> None:
    for world, *ours in ranks(4, timeouts):
        assert ours == [world, world]
        assert world != 1800  # torch's own default, which new groups get otherwise


def outside(device_mesh: DeviceMesh) -> tuple[Any, ...]:
    """Ranks 3 and 1 have a mesh; the others take part in making its group."""
    mesh = DeviceMesh("cpu", [3, 1], mesh_dim_names=("x",))
    try:
        group = mesh.get_group("x")
    except RuntimeError as error:
        return mesh.get_coordinate(), str(error)
    return mesh.get_local_rank(), ranks_of(group)


def test_ranks_outside_take_part_and_are_told(ranks: RankPool) -> None:
    """device-mesh members | `get_group()`: ranks outside take part, then `RuntimeError`."""
    answers = ranks(4, outside)
    assert answers[1] == (1, [3, 1])
    assert answers[3] == (0, [3, 1])
    for rank in (0, 2):
        coordinate, message = answers[rank]
        assert coordinate is None
        assert f"rank {rank} is not in" in message


def line_of_another_rank(device_mesh: DeviceMesh) -> list[int] | str:
    """The line through rank 0, sent to all ranks: those of the other line are outside."""
    line = broadcast_object(grid()["tp"], device_mesh)
    try:
        return ranks_of(line.get_group())
    except RuntimeError as error:
        return str(error)


def test_line_of_another_rank_gives_no_group(ranks: RankPool) -> None:
    answers = ranks(4, line_of_another_rank)
    assert answers[:2] == [[0, 1]] * 2
    for rank in (2, 3):
        assert f"rank {rank} is not in DeviceMesh(tp=2, 'cpu')" in answers[rank]


def test_mesh_larger_than_the_job_has_no_groups(job: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match=r"rank 3.*only 1 ranks"):
        grid().get_group("dp")


def backends(device_mesh: DeviceMesh) -> list[str]:
    mesh = init_device_mesh(
        "cpu",
        (2, 2),
        mesh_dim_names=NAMES,
        backend_override={"dp": "cpu:gloo", 1: ("gloo", None)},
    )
    flat = mesh._flatten("all", backend_override="cpu:gloo")
    groups = [*mesh.get_all_groups(), flat.get_group(), grid().get_group("dp")]
    return [dist.get_backend_config(group) for group in groups]


def test_backend_can_be_chosen_by_dimension(ranks: RankPool) -> None:
    """device-mesh members | `backend_override`: by dimension."""
    for config in ranks(4, backends):
        assert config == ["cpu:gloo", "cpu:gloo,cuda:gloo", "cpu:gloo", "cpu:gloo,cuda:gloo"]


def test_groups_of_a_former_job_are_made_again(job: Callable[[], None]) -> None:
    mesh = DeviceMesh("cpu", [0])
    former = mesh.get_group()
    assert mesh.get_group() is former
    job()
    assert mesh.get_group() is not former
    dist.all_reduce(torch.ones(1), group=mesh.get_group())


def test_torch_mesh_of_a_former_job_is_made_again(job: Callable[[], None]) -> None:
    mesh = DeviceMesh("cpu", [0])
    former = mesh.to_torch()
    job()
    assert mesh.to_torch() is not former
    assert mesh.to_torch().get_group() is mesh.get_group()


def test_backend_is_chosen_before_the_group_is_made(job: Callable[[], None]) -> None:
    root = DeviceMesh("cpu", [[0]], mesh_dim_names=NAMES)
    flat = root._flatten("x", backend_override="cpu:gloo")
    assert root._flatten("x", backend_override="cpu:gloo") is flat
    assert dist.get_backend_config(flat.get_group()) == "cpu:gloo"
    with pytest.raises(ValueError, match="too late"):
        root._flatten("x", backend_override="gloo")
    root.get_group("dp")
    with pytest.raises(ValueError, match="too late"):
        root["dp"]._flatten("y", backend_override="cpu:gloo")


# ---- from_group, from_torch, to_torch ----


def wrapped(device_mesh: DeviceMesh) -> dict[str, bool]:
    root = init_device_mesh("cpu", (2, 2), mesh_dim_names=NAMES)
    groups = root.get_all_groups()
    line = DeviceMesh.from_group(groups[0], "cpu", mesh_dim_names=("dp",))
    plane = DeviceMesh.from_group(groups, "cpu", root.mesh, NAMES)
    unsorted = DeviceMesh.from_group(DeviceMesh("cpu", [3, 1, 0, 2]).get_group())
    return {
        "line": line == root["dp"] and line.get_group() is groups[0],
        "plane": plane == root and plane.get_all_groups() == groups,
        "sub-mesh of the plane": plane["tp"].get_group() is groups[1],
        "order of the group": unsorted.mesh.tolist() == [3, 1, 0, 2],
        "device type of the backend": unsorted.device_type == "cpu",
        "mesh that agrees": DeviceMesh.from_group(groups[0], "cpu", root["dp"].mesh).get_group()
        is groups[0],
    }


def test_existing_groups_are_wrapped(ranks: RankPool) -> None:
    """device-mesh members | `from_group`: one group or several."""
    for facts in ranks(4, wrapped):
        assert [fact for fact, holds in facts.items() if not holds] == []


def wrong_groups(device_mesh: DeviceMesh) -> list[tuple[str, str]]:
    groups = grid().get_all_groups()
    calls: list[Callable[[], Any]] = [
        lambda: DeviceMesh.from_group([], "cpu"),
        lambda: DeviceMesh.from_group(groups, "cpu"),
        lambda: DeviceMesh.from_group(groups[0], "cpu", [0, 1, 2, 3]),
        lambda: DeviceMesh.from_group(groups[0], "cpu", ranks_of(groups[0])[::-1]),
        lambda: DeviceMesh.from_group(groups, "cpu", [[0, 2], [1, 3]]),
        lambda: DeviceMesh.from_group(groups, "cpu", [0, 1, 2, 3]),
        lambda: DeviceMesh.from_group(groups[0], "cpu", mesh_dim_names=NAMES),
        lambda: DeviceMesh.from_group(dist.GroupMember.NON_GROUP_MEMBER, "cpu"),  # type: ignore[arg-type]
        lambda: DeviceMesh.from_torch(grid()),  # type: ignore[arg-type]
    ]
    errors = []
    for call in calls:
        try:
            call()
        except (ValueError, TypeError) as error:
            errors.append((type(error).__name__, str(error)))
    return errors


def test_groups_that_disagree_with_the_mesh(ranks: RankPool) -> None:
    """device-mesh members | `from_group`: a `mesh` that disagrees is a `ValueError`."""
    parts = ["empty", "missing", "disagrees", "disagrees", "disagrees"]
    parts += ["1 dimensions", "mesh_dim_names", "process group", "device mesh of torch"]
    kinds = ["ValueError"] * 7 + ["TypeError"] * 2
    for errors in ranks(4, wrong_groups):
        assert [kind for kind, _ in errors] == kinds
        for (_, message), part in zip(errors, parts, strict=True):
            assert part in message


def torch_and_back(device_mesh: DeviceMesh) -> dict[str, bool]:
    root = init_device_mesh("cpu", (2, 2), mesh_dim_names=NAMES)
    theirs = root.to_torch()
    sub = root["tp"].to_torch()
    odd = DeviceMesh("cpu", [2, 0, 3, 1])
    given = torch_init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
    ours = DeviceMesh.from_torch(given)
    from torch.distributed.tensor import Shard, distribute_tensor

    x = torch.arange(8.0)
    shard = distribute_tensor(x, odd.to_torch(), [Shard(0)])
    unnamed = grid(None).to_torch()
    return {
        "type": isinstance(theirs, TorchDeviceMesh),
        "the same groups": theirs.get_all_groups() == root.get_all_groups(),
        "the same ranks": theirs.mesh.tolist() == root.mesh.tolist(),
        "the same names": theirs.mesh_dim_names == NAMES,
        "made once": root.to_torch() is theirs,
        "sub-mesh": sub.get_group() is root.get_group("tp") and sub.ndim == 1,
        "slice of theirs": theirs["tp"].get_group() is root.get_group("tp"),
        "order": odd.to_torch().mesh.tolist() == [2, 0, 3, 1],
        "DTensor": torch.equal(
            shard.to_local(), x.split(2)[[2, 0, 3, 1].index(device_mesh.get_rank())]
        )
        and torch.equal(shard.full_tensor(), x),
        "no names": unnamed.mesh.tolist() == GRID,
        "wrapped": ours.mesh.tolist() == GRID and ours.mesh_dim_names == ("x", "y"),
        "wrapped groups": ours["y"].get_group() is given.get_group("y"),
        "back": ours.to_torch() is given,
        "either": as_device_mesh(given) == ours and as_device_mesh(root) is root,
    }


def test_torch_mesh_over_the_same_groups(ranks: RankPool) -> None:
    """device-mesh Beyond | interop: `to_torch`, `from_torch`, the same groups."""
    for facts in ranks(4, torch_and_back):
        assert [fact for fact, holds in facts.items() if not holds] == []


def remade_lines(device_mesh: DeviceMesh) -> list[int]:
    """Each rank wraps its own line; after pickling the lines' groups are made by themselves."""
    given = torch_init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
    line = DeviceMesh.from_torch(given["y"])
    again = pickle.loads(pickle.dumps(line))
    assert again.get_group() is not line.get_group()
    return all_gather_ints([device_mesh.get_rank()], again).flatten().tolist()


def test_lines_that_differ_by_rank_survive_pickling(ranks: RankPool) -> None:
    assert ranks(4, remade_lines) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_anything_else_is_no_device_mesh() -> None:
    with pytest.raises(TypeError, match="str"):
        as_device_mesh("cpu")  # type: ignore[arg-type]


# ---- the default mesh and the device of a rank ----


def default_facts(device_mesh: DeviceMesh) -> tuple[Any, ...]:
    mesh = default_device_mesh("cpu")
    ranks_of(mesh.get_group())
    same = default_device_mesh() is mesh and as_device_mesh(None) is mesh
    return mesh.mesh.tolist(), mesh.ndim, str(mesh.device), same


def test_default_is_one_mesh_over_the_world(ranks: RankPool) -> None:
    """device-mesh Beyond | default: one cached mesh over the world."""
    assert ranks(4, default_facts) == [([0, 1, 2, 3], 1, "cpu", True)] * 4


def test_default_without_a_process_group_is_this_process() -> None:
    mesh = default_device_mesh("cpu")
    assert mesh.mesh.tolist() == [0]
    assert mesh.get_local_rank() == 0
    assert default_device_mesh("cpu") is mesh


def test_default_is_renewed_with_the_job(job: Callable[[], None]) -> None:
    first = default_device_mesh("cpu")
    assert default_device_mesh("cpu") is first
    job()
    second = default_device_mesh("cpu")
    assert second is not first
    dist.all_reduce(torch.ones(1), group=second.get_group())


class FakeAccelerator:
    """Stands for a node with two devices."""

    @staticmethod
    def device_count() -> int:
        return 2


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device_type: FakeAccelerator)


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize(("local_rank", "index"), [("1", 1), ("0", 0), (None, 0)])
def test_device_is_the_local_rank(
    monkeypatch: pytest.MonkeyPatch, local_rank: str | None, index: int
) -> None:
    """device-mesh Beyond | device of a rank: `cuda:LOCAL_RANK`, or `cpu`."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert DeviceMesh("cuda", [0]).device == torch.device("cuda", index)
    assert DeviceMesh("cpu", [0]).device == torch.device("cpu")


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("local_rank", ["2", "-1", "one"])
def test_local_rank_that_is_no_device(monkeypatch: pytest.MonkeyPatch, local_rank: str) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    with pytest.raises(RuntimeError, match=rf"LOCAL_RANK = '{local_rank}'.*2 cuda"):
        rank_device("cuda")


def device_error(device_mesh: DeviceMesh) -> str:
    os.environ.pop("LOCAL_RANK", None)
    try:
        return str(rank_device("cuda"))
    except RuntimeError as error:
        return str(error)


def test_job_of_several_ranks_needs_local_rank(ranks: RankPool) -> None:
    for message in ranks(2, device_error):
        assert "LOCAL_RANK is not set" in message
