"""Gradients of sharded work equal those of one process, and are the same on every rank."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

Inputs = dict[str, Tensor]


class Form(tm.ElementAssembler):
    """Not symmetric; every kind of data, a parameter, and a keyword argument."""

    def __post_init__(self, E: Tensor) -> None:
        self.E = E
        self.p = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))

    def forward(self, u, v, gradu, gradv, x, a, k, s):
        return (
            self.E * k * (gradu @ gradv)
            + torch.sin(self.p * s * a) * u * v
            + (x @ gradu) * v * a**2
        )


class Load(tm.NodeAssembler):
    def __post_init__(self, E: Tensor) -> None:
        self.E = E
        self.p = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))

    def forward(self, v, x, a, k, s):
        return self.E * torch.exp(self.p * x[0]) * k * (a + s) * v


class Flux(tm.FacetAssembler):
    def forward(self, v, x, n, a, s):
        return s * a**2 * (x @ n) * v


def inputs(kind: str) -> Inputs:
    mesh = mesh_of(kind)
    x = mesh.points.detach()
    found = {
        "a": torch.cos(x[:, 0]) + x[:, 1],
        "s": torch.tensor(0.7, dtype=torch.float64),
        "E": torch.tensor(2.5, dtype=torch.float64),
        "points": x.clone(),
        "g": torch.sin(x.sum(1)),
    }
    for i, (name, cells) in enumerate(mesh.top_cells().items()):
        found[f"k {name}"] = 1.0 + i + torch.arange(float(len(cells)), dtype=torch.float64) / 9
    return {name: value.requires_grad_() for name, value in found.items()}


def call_of(given: Inputs, points: bool = True) -> dict[str, Any]:
    call: dict[str, Any] = {
        "point_data": {"a": given["a"]},
        "element_data": {"k": {name[2:]: k for name, k in given.items() if name.startswith("k ")}},
        "scalar_data": {"s": given["s"]},
    }
    return call | ({"points": given["points"]} if points else {})


def probe(n: int) -> Tensor:
    return torch.cos(torch.arange(float(n), dtype=torch.float64))


# ---- the scalars: of a matrix and vectors, and of reductions that are global ----


def dot_of_product(K: Any, f: Tensor, x: Tensor, ops: Any) -> Tensor:
    return ops.dot(x, K @ x)


def norm_of_residual(K: Any, f: Tensor, x: Tensor, ops: Any) -> Tensor:
    return ops.norm(f - K @ x)


def sum_of_columns(K: Any, f: Tensor, x: Tensor, ops: Any) -> Tensor:
    return ops.sum((K @ torch.stack([x, x**2], dim=1)) ** 2)


def mean_of_load(K: Any, f: Tensor, x: Tensor, ops: Any) -> Tensor:
    return ops.mean(f**3) + ops.sum(K.diagonal() ** 2)


def sum_of_matrices(K: Any, f: Tensor, x: Tensor, ops: Any) -> Tensor:
    return ops.norm((K * K - 3 * K) @ (x + f))


SCALARS = (dot_of_product, norm_of_residual, sum_of_columns, mean_of_load, sum_of_matrices)


class SerialOps:
    dot = staticmethod(torch.dot)
    norm = staticmethod(torch.linalg.vector_norm)
    sum = staticmethod(torch.sum)
    mean = staticmethod(torch.mean)


def gradients(value: Tensor, given: Inputs, *parameters: Tensor) -> list[Tensor]:
    wanted = [*given.values(), *parameters]
    grads = torch.autograd.grad(value, wanted, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads, strict=True)]


def serial(kind: str, scalar: Callable[..., Tensor]) -> tuple[Tensor, list[Tensor]]:
    given, mesh = inputs(kind), mesh_of(kind)
    element, load = Form.from_mesh(mesh, E=given["E"]), Load.from_mesh(mesh, E=given["E"])
    K, f = element(**call_of(given)), load(**call_of(given, points=False), points=given["points"])
    value = scalar(K, f, given["g"], SerialOps)
    return value.detach(), gradients(value, given, element.p, load.p)


def sharded(
    device_mesh: DeviceMesh, kind: str, cut: str | list[int], names: Sequence[str]
) -> dict[str, tuple[Tensor, list[Tensor]]]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)
    found = {}
    for scalar in SCALARS:
        if scalar.__name__ not in names:
            continue
        for _ in range(2):  # fresh calls: nothing of the first is left over
            given = inputs(kind)
            element = tm.distributed.distributed(Form).from_mesh(dmesh, E=given["E"])
            load = tm.distributed.distributed(Load).from_mesh(dmesh, E=given["E"])
            K, f = element(**call_of(given)), load(**call_of(given))
            value = scalar(K, f, dmesh.scatter(given["g"]), dmesh)
            grads = gradients(value, given, element.p, load.p)
        found[scalar.__name__] = value.detach(), grads
    return found


def assert_gradients(
    ranks: RankPool, n: int, kind: str, cut: str | list[int] = "coordinate"
) -> None:
    names = [scalar.__name__ for scalar in SCALARS]
    found = ranks(n, sharded, kind, cut, names)
    for scalar in SCALARS:
        value, grads = serial(kind, scalar)
        assert any(g.abs().max() > 0 for g in grads)
        for got in found:
            here, of_inputs = got[scalar.__name__]
            torch.testing.assert_close(here, value, rtol=1e-12, atol=0)
            for name, g, right in zip([*inputs(kind), "p", "q"], of_inputs, grads, strict=True):
                scale = max(float(right.abs().max()), 1e-300)
                torch.testing.assert_close(
                    g, right, rtol=0, atol=1e-12 * scale, msg=f"{scalar.__name__}: {name}"
                )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_of_replicated_inputs_are_the_serial_ones(ranks: RankPool, n: int) -> None:
    """distributed-api Gradients | replicated inputs: the full gradient, the same on every rank.
    known-faults | 23: gradient of a scalar of K with respect to coefficients.

    features | parameters of a form, moved points: distributed.
    features | distributed, DistributedMesh: differentiable.
    """
    assert_gradients(ranks, n, "tet")


def test_parts_without_cells_of_a_type(ranks: RankPool) -> None:
    """known-faults | 30: a rank without cells of a type takes part.

    Quads are on the left, triangles on the right: no rank has both.
    """
    mesh = mesh_of("mixed")
    n_quads = len(mesh.cells["quad"])
    kinds = [0] * n_quads + [1] * (mesh.n_elements - n_quads)
    if next(iter(mesh.top_cells())) == "triangle":
        kinds = [1] * (mesh.n_elements - n_quads) + [0] * n_quads
    assert_gradients(ranks, 2, "mixed", kinds)
    assert_gradients(ranks, 3, "mixed")


def test_a_rank_that_owns_nothing(ranks: RankPool) -> None:
    assert_gradients(ranks, 2, "grid", NOTHING_OWNED)


def test_parts_in_one_process() -> None:
    mesh = mesh_of("mixed")
    for scalar in SCALARS:
        value, grads = serial("mixed", scalar)
        dmesh = tm.DistributedMesh(mesh, 3)
        given = inputs("mixed")
        element = tm.distributed.distributed(Form).from_mesh(dmesh, E=given["E"])
        load = tm.distributed.distributed(Load).from_mesh(dmesh, E=given["E"])
        here = scalar(element(**call_of(given)), load(**call_of(given)), given["g"], dmesh)
        torch.testing.assert_close(here.detach(), value, rtol=1e-12, atol=0)
        for g, right in zip(gradients(here, given, element.p, load.p), grads, strict=True):
            torch.testing.assert_close(g, right, rtol=1e-11, atol=1e-12 * float(right.abs().max()))


# ---- inputs given as this rank's part, or as its owned slice ----


def of_slices(device_mesh: DeviceMesh, kind: str) -> dict[str, Tensor]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh)
    given = inputs(kind)
    part = dmesh.parts[0]
    cells = part.mesh.cell_data["orig_cid"]
    owned = dmesh.scatter(given["a"].detach()).requires_grad_()
    on_part = given["a"].detach()[part.node_ids].requires_grad_()
    k = {name[2:]: x.detach() for name, x in given.items() if name.startswith("k ")}
    k_part = {t: x[cells[t]] if t in cells else x[:0] for t, x in k.items()}
    k_part = {t: x.requires_grad_() for t, x in k_part.items()}
    x = dmesh.scatter(given["g"].detach()).requires_grad_()
    points = given["points"].detach()[part.node_ids].requires_grad_()
    E = given["E"].detach()

    def scalar(a: Tensor, k: Any) -> Tensor:
        call = {"point_data": {"a": a}, "element_data": {"k": k}, "points": points}
        call["scalar_data"] = {"s": 0.7}
        K = tm.distributed_element_assemble(Form, dmesh, call_kwargs=call, E=E)
        return dmesh.dot(x, K @ x)

    wanted = list(k_part.values())
    of_owned, of_x = torch.autograd.grad(scalar(owned, k), [owned, x])
    of_part, of_points, *of_k = torch.autograd.grad(
        scalar(on_part, k_part), [on_part, points, *wanted]
    )
    found = {
        "ids": dmesh.index_map.owned_ids,
        "part ids": part.node_ids,
        "owned": of_owned,
        "x": of_x,
        "part": of_part,
        "points": of_points,
    }
    for t, g in zip(k_part, of_k, strict=True):
        found[f"k {t}"] = g
        found[f"cells {t}"] = cells[t] if t in cells else torch.zeros(0, dtype=torch.int64)
    return found


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["tri", "mixed"])
def test_gradients_of_slices_are_slices_of_the_serial_one(
    ranks: RankPool, n: int, kind: str
) -> None:
    """distributed-api Gradients | part or owned slice: its gradient, other ranks included.

    features | distributed_element_assemble: differentiable.
    """
    _, grads = serial(kind, dot_of_product)
    right = dict(zip(inputs(kind), grads, strict=False))
    for got in ranks(n, of_slices, kind):
        expected = {
            "owned": right["a"][got["ids"]],
            "x": right["g"][got["ids"]],
            "part": right["a"][got["part ids"]],
            "points": right["points"][got["part ids"]],
        }
        for name, g in right.items():
            if name.startswith("k "):
                expected[name] = g[got["cells " + name[2:]]]
        for name, g in expected.items():
            torch.testing.assert_close(got[name], g, rtol=1e-11, atol=1e-12, msg=name)


# ---- boundary conditions, facets, coordinates of the mesh ----


def lifted(given: Inputs, mesh: tm.Mesh, dmesh: tm.DistributedMesh | None) -> Tensor:
    """A scalar of a condensed right-hand side, the recovered vector, and a facet load."""
    mask = mesh.points.detach()[:, 0] < 0.4
    call = call_of(given, points=False)
    facets = {"point_data": {"a": given["a"]}, "scalar_data": {"s": given["s"]}}
    ops: Any = dmesh or SerialOps
    if dmesh is None:
        K = Form.from_mesh(mesh, E=given["E"])(**call)
        f = Flux.from_mesh(mesh)(**facets)
    else:
        K = tm.distributed_element_assemble(Form, dmesh, call_kwargs=call, E=given["E"])
        f = tm.distributed_node_assemble(Flux, dmesh, call_kwargs=facets)
    condenser = tm.Condenser(mask, given["g"])
    K_i, f_i = condenser(K, f)
    full = condenser.recover(K_i @ f_i)
    return ops.dot(full, full) + ops.norm(f)


def lifted_on_ranks(device_mesh: DeviceMesh) -> list[Tensor]:
    mesh, given = mesh_of("quad"), inputs("quad")
    mesh.points = given["points"]  # coordinates that require grad when the mesh is cut
    dmesh = dmesh_of(mesh, device_mesh)
    return gradients(lifted(given, mesh, dmesh), given)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_through_conditions_facets_and_the_points_of_the_mesh(
    ranks: RankPool, n: int
) -> None:
    """known-faults | 32: points that require grad: the gradient flows.

    features | distributed_node_assemble: differentiable.
    """
    mesh, given = mesh_of("quad"), inputs("quad")
    mesh.points = given["points"]
    right = gradients(lifted(given, mesh, None), given)
    for grads in ranks(n, lifted_on_ranks):
        for name, g, expected in zip(given, grads, right, strict=True):
            assert expected.abs().max() > 0
            scale = float(expected.abs().max())
            torch.testing.assert_close(g, expected, rtol=0, atol=1e-12 * scale, msg=name)


def to_single_and_gather(device_mesh: DeviceMesh) -> list[Tensor]:
    """Gathered results are replicated: a scalar of them counts once, not once a rank."""
    mesh, given = mesh_of("tri"), inputs("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Form, dmesh, call_kwargs=call_of(given), E=given["E"])
    u = K.to_single().solve(dmesh.gather(dmesh.scatter(given["g"])))
    return gradients((u**2).sum(), given)


def test_gathered_results_are_replicated(ranks: RankPool) -> None:
    """distributed-api Gradients | `gather`: its result is replicated."""
    mesh, given = mesh_of("tri"), inputs("tri")
    K = Form.from_mesh(mesh, E=given["E"])(**call_of(given))
    right = gradients((K.solve(given["g"]) ** 2).sum(), given)
    for grads in ranks(3, to_single_and_gather):
        for g, expected in zip(grads, right, strict=True):
            scale = float(expected.abs().max())
            torch.testing.assert_close(g, expected, rtol=0, atol=1e-9 * scale)


# ---- against finite differences ----


def energy_of(device_mesh: DeviceMesh, a: Tensor, points: Tensor) -> tuple[float, Tensor, Tensor]:
    mesh, given = mesh_of("tri"), inputs("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    given["a"], given["points"] = a.requires_grad_(), points.requires_grad_()
    K = tm.distributed_element_assemble(Form, dmesh, call_kwargs=call_of(given), E=given["E"])
    x = dmesh.scatter(probe(mesh.n_points))
    value = dmesh.dot(x, K @ x)
    of_a, of_points = torch.autograd.grad(value, [given["a"], given["points"]])
    return float(value.detach()), of_a, of_points


def test_finite_differences(ranks: RankPool) -> None:
    """distributed-api Gradients | finite differences agree.

    features | DSparseMatrix: differentiable.
    """
    given = inputs("tri")
    a, points = given["a"].detach(), given["points"].detach()
    da, dx = probe(len(a)), probe(points.numel()).reshape(points.shape)
    _, of_a, of_points = ranks(3, energy_of, a, points)[0]
    step = 1e-6
    for d, along in ((da, of_a), (dx, of_points)):
        shifts = [(sign * step * d) for sign in (1, -1)]
        up, down = (
            ranks(3, energy_of, a + s, points)[0][0]
            if d is da
            else ranks(3, energy_of, a, points + s)[0][0]
            for s in shifts
        )
        assert float((d * along).sum()) == pytest.approx((up - down) / (2 * step), abs=1e-7)


def solved_energy(
    device_mesh: DeviceMesh, a: Tensor, points: Tensor
) -> tuple[float, Tensor, Tensor]:
    """A scalar of the solution, with its gradients by coefficients and points."""
    mesh = mesh_of("tri")
    a, points = a.requires_grad_(), points.requires_grad_()
    mesh.points = points
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Conductivity, dmesh, call_kwargs={"point_data": {"a": a}})
    b = dmesh.scatter(probe(mesh.n_points))
    x: Any = K.solve(b, rtol=1e-13)
    value = dmesh.dot(x, x)
    of_a, of_points = torch.autograd.grad(value, [a, points])
    return float(value.detach()), of_a, of_points


class Conductivity(tm.ElementAssembler):
    def forward(self, u, v, gradu, gradv, a):
        return torch.exp(a) * (gradu @ gradv) + u * v


@pytest.mark.parametrize("n", [1, 2, 3])
def test_finite_differences_through_a_solve(ranks: RankPool, n: int) -> None:
    """distributed-api Gradients | assembly and solve: finite differences agree."""
    mesh = mesh_of("tri")
    points = mesh.points
    a = 0.3 * probe(mesh.n_points)
    da, dx = probe(len(a)), probe(points.numel()).reshape(points.shape)
    value, of_a, of_points = ranks(n, solved_energy, a, points)[0]
    step = 1e-5
    for along, moved in (
        ((da * of_a).sum(), lambda s: (a + s * da, points)),
        ((dx * of_points).sum(), lambda s: (a, points + s * dx)),
    ):
        up, down = (ranks(n, solved_energy, *moved(sign * step))[0][0] for sign in (1, -1))
        assert float(along) == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-6 * value)
