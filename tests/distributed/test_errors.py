"""Wrong input on one rank or on all: the same exception on every rank, soon, and life goes on."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.collectives import all_reduce_sum
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import Flux, Transport, data_of, mesh_of, outcome
from tests.rank_pool import RankPool

# A case gets the context and whether this rank is to be wrong; its call is made on all ranks.
Case = Callable[["Context", bool], Any]


class Context:
    """What the cases work on."""

    def __init__(self, device_mesh: DeviceMesh) -> None:
        self.device_mesh = device_mesh
        self.mesh = mesh_of("tri")
        self.cut = partial(tm.DistributedMesh, device_mesh=device_mesh)
        self.dmesh = self.cut(self.mesh)
        self.call = data_of(self.mesh)
        self.K = tm.distributed_element_assemble(tm.MassElementAssembler, self.dmesh)
        self.b = tm.distributed_node_assemble(tm.const_node_assembler(), self.dmesh)

    def assemble(self, cls: Any = Transport, **changes: Any) -> Any:
        return tm.distributed_element_assemble(cls, self.dmesh, call_kwargs=self.call | changes)

    def mass(self, **options: Any) -> Any:
        return tm.distributed_element_assemble(tm.MassElementAssembler, self.dmesh, **options)

    def flux(self, mask: Any) -> Any:
        data = {"a": self.mesh.points[:, 0]}
        return tm.distributed_node_assemble(Flux, self.dmesh, point_data=data, boundary_mask=mask)


def if_(wrong: bool, bad: Any, good: Any) -> Any:
    return bad if wrong else good


# ---- the mesh ----


def other_points(c: Context, wrong: bool) -> Any:
    mesh = mesh_of("tri")
    mesh.points = if_(wrong, mesh.points * 1.5, mesh.points)
    return c.cut(mesh)


def other_cells(c: Context, wrong: bool) -> Any:
    mesh = mesh_of("tri")
    if wrong:
        mesh.cells["triangle"] = mesh.cells["triangle"].roll(1, dims=1)
    return c.cut(mesh)


def bad_cell(c: Context, wrong: bool) -> Any:
    mesh = mesh_of("tri")
    mesh.cells["triangle"][2, 1] = if_(wrong, 1000, mesh.cells["triangle"][2, 1])
    return c.cut(mesh)


def nan_point(c: Context, wrong: bool) -> Any:
    mesh = mesh_of("tri")
    mesh.points = mesh.points.clone()
    mesh.points[5] = if_(wrong, float("nan"), mesh.points[5])
    return c.cut(mesh)


# ---- forms ----


class FailsSomewhere(tm.ElementAssembler):
    def __post_init__(self, wrong: bool) -> None:
        self.wrong = wrong

    def forward(self, u, v):
        if self.wrong:
            raise ArithmeticError("this form does not like this rank")
        return u * v


class FailsEarly(tm.ElementAssembler):
    def __post_init__(self, wrong: bool) -> None:
        if wrong:
            raise LookupError("no such material")

    def forward(self, u, v):
        return u * v


class Width(tm.ElementAssembler):
    def __post_init__(self, h: int) -> None:
        self.h = h

    def forward(self, u, v):
        return u * v * torch.ones(self.h, self.h, dtype=u.dtype)


class Square(tm.ElementAssembler):
    def __post_init__(self, power: int) -> None:
        self.power = power

    def forward(self, u, v):
        return u**self.power * v


def form(cls: Any, name: str, bad: Any, good: Any) -> Case:
    def case(c: Context, wrong: bool) -> Any:
        return tm.distributed_element_assemble(cls, c.dmesh, **{name: if_(wrong, bad, good)})

    return case


def forward_of_a_vector(c: Context, wrong: bool) -> Any:
    class Load(tm.NodeAssembler):
        def forward(self, v):
            if wrong:
                raise ArithmeticError("this form does not like this rank")
            return v

    return tm.distributed_node_assemble(Load, c.dmesh)


def longer(x: Tensor, wrong: bool) -> Tensor:
    return torch.cat([x, x[:1]]) if wrong else x


def point_data(c: Context, wrong: bool) -> Any:
    return c.assemble(point_data={"a": longer(c.call["point_data"]["a"], wrong)})


def element_data(c: Context, wrong: bool) -> Any:
    k = c.call["element_data"]["k"]["triangle"]
    return c.assemble(element_data={"k": longer(k, wrong)})


def missing_data(c: Context, wrong: bool) -> Any:
    return c.assemble(point_data=if_(wrong, {}, c.call["point_data"]))


def scalar_data(c: Context, wrong: bool) -> Any:
    return c.assemble(scalar_data=if_(wrong, {}, {"s": 0.7}))


def no_tensor(c: Context, wrong: bool) -> Any:
    return c.assemble(point_data={"a": if_(wrong, 3.0, c.call["point_data"]["a"])})


def no_dict(c: Context, wrong: bool) -> Any:
    return c.assemble(point_data=if_(wrong, [1.0], c.call["point_data"]))


def points(c: Context, wrong: bool) -> Any:
    return c.assemble(points=longer(c.mesh.points, wrong))


def points_somewhere(c: Context, wrong: bool) -> Any:
    return c.assemble(points=if_(wrong, c.mesh.points, None))


def other_type(c: Context, wrong: bool) -> Any:
    k = c.call["element_data"]["k"]["triangle"]
    return c.assemble(element_data={"k": {if_(wrong, "quad", "triangle"): k}})


def per_rank(c: Context, wrong: bool) -> Any:
    rank = c.device_mesh.get_local_rank()
    return tm.distributed_element_assemble_per_rank(
        tm.MassElementAssembler, c.dmesh, rank + int(wrong)
    )


def complex_somewhere(c: Context, wrong: bool) -> Any:
    return c.assemble(scalar_data={"s": if_(wrong, 1.0 + 2.0j, 1.0)})


def solve(**bad: Any) -> Case:
    return lambda c, wrong: c.K.solve(c.b, **(bad if wrong else {}))


def nan_load(c: Context, wrong: bool) -> Any:
    return c.K.solve(c.b * if_(wrong, float("nan"), 1.0))


def wrong_load(c: Context, wrong: bool) -> Any:
    return c.K.solve(longer(c.b, wrong))


def single_load(c: Context, wrong: bool) -> Any:
    return c.K.solve(if_(wrong, c.b.float(), c.b))


def guess_somewhere(c: Context, wrong: bool) -> Any:
    return c.K.solve(c.b, x0=if_(wrong, c.b, None))


def mask(c: Context, wrong: bool) -> Any:
    return tm.Condenser(longer(c.mesh.boundary_mask, wrong))(c.K, c.b)


# Name: (case, exception, part of its text).
CASES: dict[str, tuple[Case, str, str]] = {
    "method": (
        lambda c, wrong: c.cut(c.mesh, method=if_(wrong, "nonsense", "metis")),
        "ValueError",
        "nonsense",
    ),
    "no parts": (
        lambda c, wrong: c.cut(c.mesh, if_(wrong, 0, None)),
        "ValueError",
        "num_partitions",
    ),
    "world size": (
        lambda c, wrong: c.cut(c.mesh, if_(wrong, 2, 3)),
        "ValueError",
        "num_partitions = 2, but the device mesh has 3 ranks",
    ),
    "devices": (
        lambda c, wrong: c.cut(c.mesh, devices=["cpu"] * if_(wrong, 2, 3)),
        "ValueError",
        "devices",
    ),
    "no mesh": (
        lambda c, wrong: c.cut(if_(wrong, "bracket.msh", c.mesh)),
        "TypeError",
        "mesh must be a Mesh",
    ),
    "few cells": (
        lambda c, wrong: c.cut(if_(wrong, tm.Mesh.gen_rectangle(n=(1, 1)), c.mesh)),
        "ValueError",
        "num_partitions = 3",
    ),
    "no cells": (
        lambda c, wrong: c.cut(if_(wrong, tm.Mesh.from_arrays(torch.zeros(2, 2), {}), c.mesh)),
        "ValueError",
        "no cells",
    ),
    "weights": (
        lambda c, wrong: c.cut(c.mesh, weights=torch.ones(60) * if_(wrong, -1.0, 1.0)),
        "ValueError",
        "weights",
    ),
    "bad cell": (bad_cell, "ValueError", "1000"),
    "nan": (nan_point, "ValueError", "Point 5"),
    "form": (form(FailsSomewhere, "wrong", True, False), "ArithmeticError", "does not like"),
    "vector form": (forward_of_a_vector, "ArithmeticError", "does not like"),
    "post init": (form(FailsEarly, "wrong", True, False), "LookupError", "no such material"),
    "not bilinear": (form(Square, "power", 2, 1), "FormError", "linear"),
    "unknown kwarg": (
        lambda c, wrong: c.mass(**if_(wrong, {"nonsense": 1}, {})),
        "TypeError",
        "nonsense",
    ),
    "project": (
        lambda c, wrong: c.mass(project=if_(wrong, "nonsense", "reduce")),
        "ValueError",
        "project",
    ),
    "quadrature": (
        lambda c, wrong: c.mass(quadrature_order=if_(wrong, 0, 2)),
        "ValueError",
        "quadrature_order",
    ),
    "call kwarg": (
        lambda c, wrong: c.mass(call_kwargs=if_(wrong, {"nonsense": 1}, {})),
        "TypeError",
        "nonsense",
    ),
    "no class": (
        lambda c, wrong: tm.distributed_element_assemble(
            if_(wrong, tm.Mesh, tm.MassElementAssembler), c.dmesh
        ),
        "TypeError",
        "assembler",
    ),
    "wrong family": (
        lambda c, wrong: tm.distributed_element_assemble(
            if_(wrong, tm.const_node_assembler(), tm.MassElementAssembler), c.dmesh
        ),
        "TypeError",
        "no assembler of a bilinear form",
    ),
    "point data": (point_data, "ValueError", "point_data['a'] has length"),
    "element data": (element_data, "ValueError", "element_data['k'] on triangle has length"),
    "no tensor": (no_tensor, "TypeError", "point_data['a']"),
    "no dict": (no_dict, "TypeError", "point_data"),
    "scalar data": (scalar_data, "", "'s'"),
    "points": (points, "ValueError", "points has length"),
    "points of text": (
        lambda c, wrong: c.assemble(points=if_(wrong, "moved", c.mesh.points)),
        "TypeError",
        "points",
    ),
    "other type": (other_type, "ValueError", "quad"),
    "group": (lambda c, wrong: c.flux(if_(wrong, "nonsense", "left")), "KeyError", "nonsense"),
    "mask": (
        lambda c, wrong: c.flux(longer(c.mesh.boundary_mask, wrong)),
        "ValueError",
        "boundary_mask",
    ),
    "mask of floats": (
        lambda c, wrong: c.flux(if_(wrong, c.mesh.points[:, 0], c.mesh.boundary_mask)),
        "",
        "boundary_mask",
    ),
    "rank": (per_rank, "ValueError", "rank = "),
    "solve method": (solve(method="nonsense"), "ValueError", "method"),
    "preconditioner": (solve(preconditioner="nonsense"), "ValueError", "preconditioner"),
    "on failure": (solve(on_failure="nonsense"), "ValueError", "on_failure"),
    "tolerance": (solve(rtol=0.0), "ValueError", "rtol"),
    "maxiter": (solve(maxiter=0), "ValueError", "maxiter"),
    "tolerance of text": (solve(rtol="small"), "TypeError", ""),
    "nan load": (nan_load, "ValueError", "NaN"),
    "wrong load": (wrong_load, "ValueError", "b has shape"),
    "constraints": (mask, "ValueError", "dirichlet_mask"),
}
# Wrong only because the ranks differ.
DIFFERENT: dict[str, tuple[Case, str, str]] = {
    "other points": (other_points, "ValueError", "different meshes"),
    "other cells": (other_cells, "ValueError", "different meshes"),
    "missing data": (missing_data, "ValueError", "different data"),
    "columns": (
        lambda c, wrong: c.dmesh.vectors.owned(torch.zeros(42, 2)[:, if_(wrong, 0, slice(2))], "f"),
        "ValueError",
        "different data",
    ),
    "points somewhere": (points_somewhere, "ValueError", "different data"),
    "width": (form(Width, "h", 2, 3), "ValueError", "different numbers of unknowns"),
    "complex": (complex_somewhere, "ValueError", "dtypes"),
    "mask or name": (
        lambda c, wrong: c.flux(if_(wrong, "left", c.mesh.boundary_mask)),
        "ValueError",
        "different data",
    ),
    "iterations": (solve(maxiter=1), "ValueError", "different options"),
    "precision": (single_load, "ValueError", "different options"),
    "guess": (guess_somewhere, "ValueError", "different options"),
}


def outcomes(
    device_mesh: DeviceMesh, names: list[str], bad_ranks: list[int]
) -> dict[str, tuple[Any, float, float]]:
    """Exception of each case, its seconds, and a sum over the ranks right after it."""
    context = Context(device_mesh)
    wrong = device_mesh.get_local_rank() in bad_ranks
    found = {}
    for name in names:
        case = (CASES | DIFFERENT)[name][0]
        start = time.perf_counter()
        error = outcome(case, context, wrong)
        seconds = time.perf_counter() - start
        total = all_reduce_sum(torch.ones(1), device_mesh)
        found[name] = error, seconds, float(total)
    return found


def check(found: list[dict[str, tuple[Any, float, float]]], names: list[str]) -> None:
    for name in names:
        _, expected, hint = (CASES | DIFFERENT)[name]
        errors = [got[name][0] for got in found]
        assert all(error is not None for error in errors), (name, errors)
        assert all(expected in error[0] and hint in error[1] for error in errors), (name, errors)
        assert len({error[0] for error in errors}) == 1, (name, errors)
        assert all(got[name][1] < 20 for got in found), name
        assert all(got[name][2] == len(found) for got in found), name


@pytest.mark.parametrize("bad_ranks", [[0], [2], [0, 1, 2]])
def test_wrong_input_is_the_same_error_on_every_rank(ranks: RankPool, bad_ranks: list[int]) -> None:
    """distributed-api Errors | every rank raises what is wrong on one; none waits."""
    names = list(CASES)
    check(ranks(3, outcomes, names, bad_ranks, timeout=120.0), names)


@pytest.mark.parametrize("bad_ranks", [[0], [2]])
def test_ranks_that_differ_are_told(ranks: RankPool, bad_ranks: list[int]) -> None:
    """distributed-api Errors | ranks that differ in what they pass are told."""
    names = list(DIFFERENT)
    check(ranks(3, outcomes, names, bad_ranks, timeout=120.0), names)


def right(device_mesh: DeviceMesh) -> dict[str, Any]:
    """The same calls with nothing wrong: the cases test what they say."""
    context = Context(device_mesh)
    return {name: outcome(case[0], context, False) for name, case in (CASES | DIFFERENT).items()}


def test_the_cases_are_right_where_nothing_is_wrong(ranks: RankPool) -> None:
    for found in ranks(3, right):
        assert {name for name, error in found.items() if error is not None} == set()


def test_an_error_in_one_process_names_the_part() -> None:
    """distributed-api distributed_element_assemble | an exception names its part."""
    dmesh = tm.DistributedMesh(mesh_of("tri"), 3)
    with pytest.raises(ArithmeticError) as caught:
        tm.distributed_element_assemble(FailsSomewhere, dmesh, wrong=True)
    assert "in part 0" in caught.value.__notes__
