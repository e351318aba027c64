"""Multi-point constraints on ranks: the algebra, periodic bodies, gradients, refusals."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import skfem
import torch
from skfem.models.poisson import laplace, mass
from torch import Tensor
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.numbering import number_by_rank
from tensormesh.distributed.periodic import periodic_pairs as pairs_on_ranks
from tensormesh.operator import MultiPoint, periodic_pairs
from tests.distributed.cases import (
    METHODS,
    NOTHING_OWNED,
    Reaction,
    Transport,
    data_of,
    dmesh_of,
    mesh_of,
    outcome,
    two_fields,
)
from tests.distributed.test_memory import largest
from tests.operator.test_multipoint import Load, wave
from tests.rank_pool import RankPool

f64 = torch.float64
Terms = tuple[Tensor, Tensor, Tensor]
SCATTERED = [3, 0, 2, 1, 0, 3, 2, 2, 1, 0, 3, 1, 2, 0, 1, 3, 0, 2]  # parts of the cells of "grid"


def eye(dim: int) -> Tensor:
    return torch.eye(dim, dtype=f64)


def scattered(n: int) -> list[int]:
    return [part % n for part in SCATTERED]


def random_terms(n: int, seed: int) -> Terms:
    """Terms without a cycle: each slave follows up to three unknowns before it in some order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    slaves = np.sort(rng.choice(np.arange(4, n), n // 2, replace=False))
    pairs = [(s, m) for s in slaves for m in rng.choice(s, rng.integers(1, 4), replace=False)]
    shuffled = order[rng.permutation(np.array(pairs))]
    index = torch.from_numpy(shuffled)
    return index[:, 0], index[:, 1], torch.from_numpy(rng.uniform(-1.0, 1.0, len(pairs)))


def solved(n: int, terms: Terms, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``T`` and the full offset, from ``u = C u + F u_free + g`` by a dense inverse; and free."""
    C = torch.zeros(n, n, dtype=f64).index_put(terms[:2], terms[2], accumulate=True)
    free = torch.ones(n, dtype=torch.bool)
    free[terms[0]] = False
    inverse = torch.linalg.inv(torch.eye(n, dtype=f64) - C)
    return inverse[:, free], inverse @ torch.where(free, 0.0, g), free


def vectors(n: int) -> tuple[Tensor, Tensor]:
    at = torch.arange(float(n), dtype=f64)
    return torch.cos(at), torch.sin(3.0 + at)


def owned_terms(K: tm.DSparseMatrix, terms: Terms) -> Terms:
    mine = torch.isin(terms[0], K.layout.owned_dofs)
    slave, master, coefficient = (x[mine] for x in terms)
    return slave, master, coefficient


def reduced(
    device_mesh: DeviceMesh, cut: Any, terms: Terms, form: str, dtype: torch.dtype
) -> dict[str, Any]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh, cut)
    K = tm.distributed_element_assemble(Reaction, dmesh, call_kwargs=two_fields(mesh)).to(dtype)
    f, g = (x.to(dtype) for x in vectors(K.shape[0]))
    ties = MultiPoint(K, *(owned_terms(K, terms) if form == "owned" else terms))
    columns = torch.stack([f, g], dim=1)
    if form == "owned":
        f, g, columns = (dmesh.scatter(x) for x in (f, g, columns))
    K_r, f_r = ties(K, f, g)
    both = ties(K, columns, g)[1], ties(K, columns, columns)[1]
    whole = K_r.layout.vectors
    u_r = whole.scatter(torch.arange(1.0, ties.n_reduced + 1, dtype=dtype))
    return {
        "K": K_r.to_single().to_dense(),
        "again": ties(K * 2.0, f)[0].to_single().to_dense() / 2.0,
        "f": whole.gather(f_r),
        "both": [whole.gather(x) for x in both],
        "u": dmesh.gather(ties.recover(u_r, g)),
        "no offset": dmesh.gather(ties.recover(u_r)),
        "restricted": whole.gather(ties.restrict(f)),
        "Ku": whole.gather(K_r @ u_r),
        "class": type(K_r).__name__,
        "n": (ties.n_reduced, K_r.shape[0], len(terms[0]) - len(owned_terms(K, terms)[0])),
    }


@pytest.mark.parametrize(
    ("n", "cut", "form", "dtype"),
    [
        (1, "coordinate", "owned", f64),
        (2, "spectral", "all", f64),
        (2, NOTHING_OWNED, "owned", f64),
        (3, "metis", "owned", f64),
        (3, scattered(3), "all", torch.float32),
        (4, scattered(4), "owned", f64),
        (4, "coordinate", "all", f64),
    ],
)
def test_reduction_is_that_of_dense_algebra(
    ranks: RankPool, n: int, cut: Any, form: str, dtype: torch.dtype
) -> None:
    """features | MultiPoint: distributed."""
    mesh = mesh_of("grid")
    A = Reaction.from_mesh(mesh)(**two_fields(mesh)).to_dense()
    f, g = vectors(len(A))
    terms = random_terms(len(A), n)
    T, offset, free = solved(len(A), terms, g)
    u_r = torch.arange(1.0, T.shape[1] + 1, dtype=f64)
    F = torch.stack([f, g], dim=1)
    offsets = torch.stack([solved(len(A), terms, x)[1] for x in (f, g)], dim=1)
    right = {
        "K": T.T @ A @ T,
        "again": T.T @ A @ T,
        "f": T.T @ (f - A @ offset),
        "both": [T.T @ (F - (A @ offset)[:, None]), T.T @ (F - A @ offsets)],
        "u": T @ u_r + offset,
        "no offset": T @ u_r,
        "restricted": f[free],
        "Ku": T.T @ A @ T @ u_r,
    }
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == f64 else {"rtol": 1e-4, "atol": 1e-4}
    for got in ranks(n, reduced, cut, terms, form, dtype):
        for name, expected in right.items():
            torch.testing.assert_close(got[name], expected, check_dtype=dtype == f64, **tolerance)
        assert got["class"] == "DSparseMatrix"
        assert got["n"][:2] == (T.shape[1], T.shape[1])


class Helmholtz(tm.ElementAssembler):
    def forward(self, u, v, gradu, gradv):
        return gradu @ gradv + 10.0 * u * v


# ---- a slave with masters on other ranks, and ranks without slaves ----


def owned_ids(device_mesh: DeviceMesh) -> Tensor:
    return dmesh_of(mesh_of("grid"), device_mesh).index_map.owned_ids


def followed(device_mesh: DeviceMesh, slave: int, masters: list[int]) -> dict[str, Any]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Helmholtz, dmesh)
    mine = int(device_mesh.get_local_rank() == 0)
    terms = torch.tensor([slave, slave])[: 2 * mine], torch.tensor(masters)[: 2 * mine]
    ties = MultiPoint(K, *terms, torch.tensor([0.25, 0.75], dtype=f64)[: 2 * mine])
    f = dmesh.scatter(vectors(K.shape[0])[0])
    K_r, f_r = ties(K, f)
    u = ties.recover(K_r.solve(f_r, rtol=1e-13))
    residual = dmesh.gather(f - K @ u)
    return {"u": dmesh.gather(u), "residual": residual, "n_slaves": int((~ties._ties.free).sum())}


def test_masters_of_a_slave_are_on_two_other_ranks(ranks: RankPool) -> None:
    slave, *masters = [int(ids[len(ids) // 2]) for ids in ranks(3, owned_ids)]
    found = ranks(3, followed, slave, masters)
    assert [rank["n_slaves"] for rank in found] == [1, 0, 0]
    for rank in found:
        u, r = rank["u"], rank["residual"]
        expected = 0.25 * u[masters[0]] + 0.75 * u[masters[1]]
        torch.testing.assert_close(u[slave], expected, rtol=1e-13, atol=0.0)
        # The equation of the slave is shared out to its masters; all others hold.
        back = torch.zeros_like(r)
        back[masters] = -torch.tensor([0.25, 0.75], dtype=f64) * r[slave]
        back[slave] = r[slave]
        torch.testing.assert_close(r, back, rtol=0.0, atol=1e-11)
        assert abs(float(r[slave])) > 1e-2


# ---- periodic bodies ----


KINDS = ("triangle6", "hex", "mixed")


def pairs_of(device_mesh: DeviceMesh, kind: str, cut: Any) -> tuple[Tensor, Tensor, Tensor]:
    mesh = mesh_of(kind)
    dmesh = dmesh_of(mesh, device_mesh, cut)
    return *periodic_pairs(dmesh, eye(mesh.dim)), dmesh.index_map.owned_ids


@pytest.mark.parametrize(
    ("n", "kind", "method"),
    [(n, kind, method) for n in (2, 4) for kind, method in zip(KINDS, METHODS, strict=True)],
)
def test_pairs_are_opposite_nodes(ranks: RankPool, n: int, kind: str, method: str) -> None:
    """features | periodic_pairs: distributed."""
    x = mesh_of(kind).points
    far = x > 1 - 1e-9
    axis = far.to(torch.int64).argmax(1)  # the first translation that leads there
    wanted = {}
    for i in far.any(1).nonzero().flatten().tolist():
        place = x[i].clone()
        place[axis[i]] -= 1.0
        wanted[i] = int((x - place).norm(dim=1).argmin())
    found = {}
    for slave, master, owned in ranks(n, pairs_of, kind, method):
        assert set(slave.tolist()) <= set(owned.tolist())
        assert slave.equal(slave.sort().values)
        found |= dict(zip(slave.tolist(), master.tolist(), strict=True))
    assert found == wanted


def lattice(seed: int) -> Tensor:
    """Some points of a lattice, each a little off its place, the corners among them."""
    rng = np.random.default_rng(seed)
    kept = rng.random((5, 4, 3)) < 0.7
    kept[0, 0, 0] = kept[-1, -1, -1] = kept[0, -1, 0] = True
    places = np.argwhere(kept) * 0.1
    return torch.from_numpy(places + rng.uniform(-1e-5, 1e-5, places.shape))


def found_among(
    device_mesh: DeviceMesh, points: Tensor, owner: Tensor, shifts: Tensor
) -> tuple[Tensor, Tensor]:
    ids = (owner == device_mesh.get_local_rank()).nonzero().flatten()
    index_map = number_by_rank(ids, ids[:0], ids[:0], device_mesh)
    number = torch.arange(len(ids)) + index_map.first
    return pairs_on_ranks(points[ids], number, index_map, device_mesh, (shifts, 1e-4))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_pairs_of_scattered_points_are_those_of_one_process(ranks: RankPool, n: int) -> None:
    """Translations shorter than the body, so that most points take part, and chains of them."""
    points = lattice(n)
    owner = torch.from_numpy(np.random.default_rng(n).integers(0, max(n - 1, 1), len(points)))
    shifts = torch.tensor([[0.1, 0.0, 0.1], [0.0, -0.2, 0.0], [0.1, 0.1, 0.0]], dtype=f64)
    expected = dict(zip(*(x.tolist() for x in periodic_pairs(points, shifts, 1e-4)), strict=True))
    found: dict[int, int] = {}
    for slave, master in ranks(n, found_among, points, owner, shifts):
        found |= dict(zip(slave.tolist(), master.tolist(), strict=True))
    assert found == expected
    assert len(found) > len(points) // 2


def square(n: int, kind: str) -> tm.Mesh:
    return tm.Mesh.gen_rectangle(n=(n, n), order=2 if kind == "tri6" else 1)


def poisson(
    device_mesh: DeviceMesh, mesh: tm.Mesh, method: str, **options: Any
) -> tuple[Any, Any, Any, Any]:
    """``-laplace u = f`` on a torus: the mesh, its constraints, and the reduced system."""
    dmesh = dmesh_of(mesh, device_mesh, method)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    f = tm.distributed_node_assemble(Load, dmesh, quadrature_order=5)
    dtype = options.get("dtype", f64)
    sides = MultiPoint(K, *periodic_pairs(dmesh, eye(mesh.dim), options.get("tolerance", 1e-8)))
    return dmesh, sides, *sides(K.to(dtype), f.to(dtype))


def on_torus(device_mesh: DeviceMesh, kind: str, n: int, method: str) -> dict[str, Any]:
    mesh = square(n, kind)
    dmesh, sides, K_r, f_r = poisson(device_mesh, mesh, method)
    held = sides.restrict(mesh.points.norm(dim=1) < 1e-12)
    condenser = tm.Condenser(held, sides.restrict(wave(mesh.points)))
    K_i, f_i = condenser(K_r, f_r)
    u = sides.recover(condenser.recover(K_i.solve(f_i, rtol=1e-13)))
    free = sides.recover(K_r.solve(f_r, rtol=1e-12, null_space="constants"))
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    e = u - dmesh.scatter(wave(mesh.points))
    one = torch.ones_like(e)
    e = e - dmesh.dot(one, M @ e) / dmesh.dot(one, M @ one)
    difference = dmesh.gather(free - u)
    return {
        "u": dmesh.gather(u),
        "error": float(dmesh.dot(e, M @ e).sqrt()),
        "spread": float(difference.max() - difference.min()),
    }


def alone(kind: str, n: int) -> Tensor:
    """The same by the serial code."""
    mesh = square(n, kind)
    sides = MultiPoint(mesh.n_points, *periodic_pairs(mesh.points, eye(2)))
    f = Load.from_mesh(mesh, quadrature_order=5)()
    K_r, f_r = sides(tm.LaplaceElementAssembler.from_mesh(mesh)(), f)
    held = sides.restrict(mesh.points.norm(dim=1) < 1e-12)
    condenser = tm.Condenser(held, sides.restrict(wave(mesh.points)))
    K_i, f_i = condenser(K_r, f_r)
    return sides.recover(condenser.recover(K_i.solve(f_i)))


@pytest.mark.parametrize(
    ("n", "kind", "method", "order"),
    [
        (1, "tri", "metis", 2),
        (2, "tri6", "spectral", 3),
        (3, "tri", "metis", 2),
        (4, "tri6", "coordinate", 3),
    ],
)
def test_periodic_poisson_converges_as_in_one_process(
    ranks: RankPool, n: int, kind: str, method: str, order: int
) -> None:
    coarse, fine = (ranks(n, on_torus, kind, cells, method) for cells in (8, 16))
    assert coarse[0]["error"] / fine[0]["error"] > 0.8 * 2**order
    expected = alone(kind, 16)
    for got in fine:
        torch.testing.assert_close(got["u"], expected, rtol=0.0, atol=1e-12)
        assert got["spread"] < 1e-9  # without a held value, another constant


def helmholtz(device_mesh: DeviceMesh) -> Tensor:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(Helmholtz, dmesh)
    M = tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    sides = MultiPoint(K, *periodic_pairs(dmesh, eye(2)))
    K_r, f_r = sides(K, M @ dmesh.scatter(torch.exp(wave(mesh.points))))
    return dmesh.gather(sides.recover(K_r.solve(f_r, rtol=1e-14)))


@pytest.mark.parametrize("n", [2, 3])
def test_periodic_solution_is_that_of_scikit_fem(ranks: RankPool, n: int) -> None:
    mesh = mesh_of("tri")
    x = mesh.points.numpy()
    far = (x > 1 - 1e-9).any(1)
    image = np.where(x > 1 - 1e-9, x - 1.0, x)
    slave = far.nonzero()[0]
    master = np.array([np.linalg.norm(x - image[i], axis=1).argmin() for i in slave])
    plain = skfem.MeshTri(x.T, mesh.top_cells()["triangle"].numpy().T, sort_t=False)
    basis = skfem.Basis(skfem.MeshTri1DG.periodic(plain, slave, master), skfem.ElementTriP1())
    f = np.zeros(basis.N)
    corner = basis.mesh.t  # the number that scikit-fem gives to each corner of a cell
    f[corner] = torch.exp(wave(mesh.points)).numpy()[plain.t]
    A, M = laplace.assemble(basis), mass.assemble(basis)
    u = skfem.solve(A + 10.0 * M, M @ f)
    for got in ranks(n, helmholtz):
        np.testing.assert_allclose(got.numpy()[plain.t], u[corner], rtol=0, atol=1e-11)


class Taylor(tm.MixedElementAssembler):
    """Two fields of different order, so that some unknowns have no equation."""

    fields: ClassVar[dict[str, tm.Field]] = {
        "u": tm.Field("v", order=2),
        "p": tm.Field("q", order=1),
    }

    def forward(self, u, gradu, v, gradv, p, q):
        return gradu @ gradv + u * v + 2.0 * p * q + u * q + p * v


def fixed_first(device_mesh: DeviceMesh | None) -> Tensor:
    """Some values fixed, then unknowns of what is left tied, numbered anew, then more fixed."""
    mesh = mesh_of("triangle6")
    n = 2 * mesh.n_points
    f, g = vectors(n)
    if device_mesh is None:
        K, whole = Taylor.from_mesh(mesh)(), lambda x: x
    else:
        dmesh = dmesh_of(mesh, device_mesh, "metis")
        K, whole = tm.distributed.distributed(Taylor).from_mesh(dmesh)(), dmesh.gather
    fix = tm.Condenser(torch.arange(n) % 7 == 0, g)
    K_i, f_i = fix(K, f)
    n_i = K_i.shape[0]
    ties = MultiPoint(K_i, *random_terms(n_i, 3))
    K_r, f_r = ties(K_i, f_i, vectors(n_i)[1])
    more = tm.Condenser(torch.arange(K_r.shape[0]) % 5 == 0)
    K_s, f_s = more(K_r, f_r)
    u = more.recover(K_s.solve(f_s, method="direct"))
    return whole(fix.recover(ties.recover(u, vectors(n_i)[1])))


@pytest.mark.parametrize("n", [1, 3])
def test_values_are_fixed_before_and_after(ranks: RankPool, n: int) -> None:
    expected = fixed_first(None)
    for got in ranks(n, fixed_first):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


# ---- solvers ----


def with_solvers(device_mesh: DeviceMesh, n: int, precision: str) -> dict[str, Any]:
    dtype = getattr(torch, precision)
    mesh = tm.Mesh.gen_rectangle(n=(n, n), element_type="quad")
    dmesh, sides, K_r, f_r = poisson(device_mesh, mesh, "coordinate", dtype=dtype)
    rtol = 1e-10 if dtype == f64 else 1e-4
    u_r, info = K_r.solve(
        torch.stack([f_r, 2.0 * f_r], dim=1), rtol=rtol, null_space="constants", return_info=True
    )
    u = dmesh.gather(sides.recover(u_r))
    return {"u": u, "name": info.preconditioner, "iterations": info.iterations}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize(("cells", "name"), [(20, "jacobi"), (72, "multilevel")])
def test_solves_with_the_preconditioners_of_auto(
    ranks: RankPool, cells: int, name: str, precision: str
) -> None:
    mesh = tm.Mesh.gen_rectangle(n=(cells, cells), element_type="quad")
    exact = wave(mesh.points)
    for got in ranks(2, with_solvers, cells, precision):
        assert got["name"] == name
        assert got["iterations"] < 40
        assert got["u"].dtype == getattr(torch, precision)
        u, twice = got["u"].unbind(1)
        torch.testing.assert_close(twice, 2.0 * u, rtol=1e-3, atol=1e-3)
        assert float((u - u.mean() - exact + exact.mean()).abs().max()) < 12.0 / cells**2


# ---- gradients ----


def gradients(device_mesh: DeviceMesh, cut: Any, terms: Terms) -> bool:
    """By entries of the matrix, right-hand side and offset, each driven by shared numbers."""
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh, cut)
    K = tm.distributed_element_assemble(Transport, dmesh, call_kwargs=data_of(mesh))
    K = K + 3.0 * tm.distributed_element_assemble(tm.MassElementAssembler, dmesh)
    ties = MultiPoint(K, *terms)
    n = K.shape[0]
    modes = torch.cos(torch.arange(float(2 * n), dtype=f64)).view(2, n)

    def solution(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        local = K.layout.with_ghosts(dmesh.scatter(a @ modes))
        values = K.values * (1 + 0.1 * local[K.layout.pattern.row] * local[K.layout.pattern.col])
        g = dmesh.scatter(c @ modes)
        K_r, f_r = ties(K._with_values(values), dmesh.scatter(b @ modes), g)
        u = ties.recover(K_r.solve(f_r, rtol=1e-13), g)
        K_u = K_r @ ties.restrict(u)
        return torch.cat([dmesh.gather(u)[::5], dmesh.sum(K_u).reshape(1)])

    given = [torch.sin(torch.arange(2.0, dtype=f64) + k).requires_grad_() for k in range(3)]
    return gradcheck(solution, given, eps=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n", "cut"), [(1, "coordinate"), (2, NOTHING_OWNED), (3, scattered(3))])
def test_gradients_are_those_of_finite_differences(ranks: RankPool, n: int, cut: Any) -> None:
    """features | MultiPoint: differentiable."""
    assert ranks(n, gradients, cut, random_terms(16, 5)) == [True] * n


def twice(value: Tensor, given: list[Tensor]) -> list[Tensor]:
    """Derivatives of a sum of squares of the derivatives of a number."""
    first = torch.autograd.grad(value, given, create_graph=True)
    return list(torch.autograd.grad(sum((x**2).sum() for x in first), given))


def second_derivatives(device_mesh: DeviceMesh, cut: Any, terms: Terms) -> list[Tensor]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh, cut)
    K = tm.distributed_element_assemble(Helmholtz, dmesh)
    ties = MultiPoint(K, *terms)
    a, g = (x.requires_grad_() for x in vectors(K.shape[0]))
    own = dmesh.scatter(a)
    values = K.values * K.layout.with_ghosts(own)[K.layout.pattern.col]
    K_r, f_r = ties(K._with_values(values), own, dmesh.scatter(g))
    u = ties.recover(K_r @ f_r, dmesh.scatter(g))
    return twice(dmesh.sum(u**3), [a, g])


@pytest.mark.parametrize(("n", "cut"), [(2, NOTHING_OWNED), (3, "metis")])
def test_second_derivatives_are_those_of_dense_algebra(ranks: RankPool, n: int, cut: Any) -> None:
    A = Helmholtz.from_mesh(mesh_of("grid"))().to_dense()
    terms = random_terms(len(A), 5)
    a, g = (x.requires_grad_() for x in vectors(len(A)))
    T, offset, _ = solved(len(A), terms, g)
    A = A * a
    u = T @ (T.T @ A @ T @ (T.T @ (a - A @ offset))) + offset
    expected = twice((u**3).sum(), [a, g])
    for got in ranks(n, second_derivatives, cut, terms):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


# ---- memory ----


def kept(device_mesh: DeviceMesh, n: int) -> tuple[set[str], dict[str, int]]:
    mesh = tm.Mesh.gen_rectangle(n=(n, n))
    dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    sides = MultiPoint(K, *periodic_pairs(dmesh, eye(2)))
    K_r, _ = sides(K, torch.zeros(K.layout.n_owned, dtype=f64))
    found = largest(sides, "sides") | largest(K_r, "K_r")
    bound = 2 * K.values.numel()
    return (
        {path for path, size in found.items() if size in (mesh.n_points, sides.n_reduced)},
        {path: size for path, size in found.items() if size > bound},
    )


def test_nothing_of_global_length_is_kept(ranks: RankPool) -> None:
    for (here, long), (there, _) in zip(ranks(4, kept, 24), ranks(4, kept, 21), strict=True):
        assert here & there == set()  # by accident a size may occur once
        assert long == {}


# ---- refusals ----


def refused(device_mesh: DeviceMesh) -> dict[str, tuple[str, str] | None]:
    mesh = mesh_of("grid")
    dmesh = dmesh_of(mesh, device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    coarser = dmesh_of(mesh_of("quad"), device_mesh)
    other = tm.distributed_element_assemble(tm.LaplaceElementAssembler, coarser)
    wrong = device_mesh.get_local_rank() == device_mesh.size() - 1  # on one rank only

    def terms(good: Any, bad: Any) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(x) for x in (bad if wrong else good))

    everywhere = torch.tensor([0, 15]), torch.tensor([15, 0])
    pairs = MultiPoint(K, *periodic_pairs(dmesh, eye(2)))
    f = torch.ones(K.layout.n_owned, dtype=f64)
    short = f[:-1] if wrong else f
    calls: dict[str, Callable[[], Any]] = {
        "range": lambda: MultiPoint(K, *terms(([1], [2]), ([1], [99]))),
        "kind": lambda: MultiPoint(K, *terms(([1], [2]), ([1], [2.0]))),
        "lengths": lambda: MultiPoint(K, *terms(([1], [2]), ([1], [2, 3]))),
        "complex": lambda: MultiPoint(K, *terms(([1], [2]), ([1], [2])), torch.tensor([1j])),
        "cycle": lambda: MultiPoint(K, *everywhere),
        "different": lambda: MultiPoint(K, *terms(([1, 4], [2, 5]), ([1, 4], [2, 6]))),
        "f": lambda: pairs(K, short),
        "offset": lambda: pairs(K, f, short),
        "columns": lambda: pairs(K, f, torch.stack([f, f], dim=1)),
        "none": lambda: pairs(K, f, None if wrong else f),
        "matrix": lambda: pairs(None if wrong else K, f),
        "other": lambda: pairs(other if wrong else K, f),
        "serial": lambda: pairs(tm.SparseMatrix.eye(16), f),
        "sharded": lambda: MultiPoint(16, torch.tensor([1]), torch.tensor([2]))(K, f),
        "u": lambda: pairs.recover(own_reduced(pairs, wrong)),
        "nowhere": lambda: periodic_pairs(dmesh, 0.9 * eye(2)),
        "translations": lambda: periodic_pairs(dmesh, eye(3 if wrong else 2)),
        "tolerance": lambda: periodic_pairs(dmesh, eye(2), 0.0 if wrong else 1e-8),
        "steps": lambda: periodic_pairs(dmesh, eye(2) * (2.0 if wrong else 1.0)),
    }
    return {name: outcome(call) for name, call in calls.items()}


def own_reduced(ties: MultiPoint, wrong: bool) -> Tensor:
    return torch.ones(ties._ties.n_free + int(wrong), dtype=f64)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_bad_input_is_refused_on_every_rank(ranks: RankPool, n: int) -> None:
    parts = {
        "range": "master holds a number outside 0 .. 15",
        "kind": "master must be an integer tensor",
        "lengths": "[n_terms]",
        "complex": "coefficient must be a tensor of real numbers",
        "cycle": "in a cycle",
        "f": "f has length",
        "offset": "offset has length",
        "columns": "offset has shape",
        "matrix": "K must be a matrix",
        "other": "expected the unknowns",
        "serial": "K must be sharded",
        "sharded": "MultiPoint(K, slave, master)",
        "u": "the reduced vector has shape",
        "nowhere": "leads from no node",
        "translations": "points and translations",
        "tolerance": "tolerance must be positive",
    }
    alike = {"none": "different data", "different": "different terms", "steps": "different data"}
    if n > 1:
        parts |= alike
    found = ranks(n, refused)
    for name, text in parts.items():
        for rank in found:
            assert rank[name] is not None, name
            assert rank[name][0] in ("ValueError", "TypeError")
            assert text in rank[name][1]
        if name not in alike:
            assert len({rank[name] for rank in found}) == 1
