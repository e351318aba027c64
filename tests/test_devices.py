"""All that is made on the way follows the device of its inputs.

On a GPU where there is one. Elsewhere on the CPU, while what names no device lands on ``meta``, and
meets tensors of the CPU there with an error.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.operator import MultiPoint, periodic_pairs, rigid_modes
from tensormesh.time import GeneralizedAlpha, Newmark, ThetaMethod
from tests.assemble.meshes import CELL_TYPES, HIGH_ORDER, filled
from tests.assemble.mixed_nonlinear import Follower, NavierStokes, Rubber, of_order
from tests.assemble.stokes import OSEEN
from tests.distributed.cases import dmesh_of
from tests.rank_pool import RankPool

f64 = torch.float64
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
Computation = Callable[[torch.device], Any]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def check(compute: Computation, device: torch.device) -> None:
    """Compare results on a device, where others are made elsewhere, with those on the CPU."""
    expected = tensors(compute(torch.device("cpu")))
    with torch.device("meta" if device.type == "cpu" else "cpu"):
        found = tensors(compute(device))
    assert len(found) == len(expected) > 0
    for x, right in zip(found, expected, strict=True):
        assert x.device.type == device.type
        torch.testing.assert_close(x.detach().cpu(), right.detach(), rtol=1e-9, atol=1e-9)


def tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, tm.SparseMatrix):
        return [result.values, result.row, result.col]
    return [x for part in result for x in tensors(part)]


def square(device: torch.device, n: int = 4) -> tm.Mesh:
    return tm.Mesh.gen_rectangle(n=(n, n)).to(device)


def test_meshes(device: torch.device) -> None:
    """features | Mesh, gen_rectangle, Mesh.raised, facets and boundary: device."""

    def compute(device: torch.device) -> Any:
        mesh = square(device)
        fine = mesh.raised(3)
        volume = tm.Mesh.gen_cube(n=(2, 2, 2)).to(device)
        return [
            fine.points,
            fine.boundary_mask,
            mesh.group("left")["line"],
            mesh.topological_boundary_mask(),
            mesh.cells["triangle"],
            volume.topological_boundary_mask(),
            mesh.node_adjacency().to_dense(),
            mesh.element_adjacency().to_dense(),
        ]

    check(compute, device)


@pytest.mark.parametrize("kind", CELL_TYPES + HIGH_ORDER)
def test_cells(device: torch.device, kind: str) -> None:
    """Matrices, and derivatives by the points.

    features | line, triangle, quad, tetra, hexahedron, wedge, pyramid, line3, triangle6: device.
    features | quad9, tetra10, hexahedron27, wedge18, pyramid14, line4, line5, triangle10: device.
    features | triangle15, quad16, quad25, tetra20, tetra35, hexahedron64, hexahedron125: device.
    features | wedge40, wedge75: device.
    """

    on_host = filled(kind, 1)

    def compute(device: torch.device) -> Any:
        mesh = on_host.clone().to(device)
        points = mesh.points.clone().requires_grad_()
        K = tm.LaplaceElementAssembler.from_mesh(mesh)(points)
        (K.values**2).sum().backward()
        return K, points.grad

    check(compute, device)


class Flux(tm.FacetAssembler):
    def forward(self, v, x, n, a):
        return a * (x @ n) * v


class Wall(tm.FacetBilinearAssembler):
    def forward(self, u, v, gradu, n):
        return (u + gradu @ n) * v


class Convection(tm.ElementAssembler):
    def forward(self, u, v, gradu, gradv, x, a, grada, k, s):
        return s * k * (gradu @ gradv) + a * (x @ gradu) * v + (grada @ gradu) * v


def test_forms(device: torch.device) -> None:
    """Built-in ones, and one with all kinds of data.

    features | ElementAssembler, NodeAssembler, FacetAssembler, FacetBilinearAssembler: device.
    features | LaplaceElementAssembler, MassElementAssembler, ScaledMassElementAssembler: device.
    features | AnisotropicLaplaceElementAssembler, LinearElasticityElementAssembler: device.
    features | const_node_assembler, func_node_assembler, robin_operator, port_source: device.
    features | NeoHookeanModel, vector-valued forms, fields at nodes, values per cell: device.
    features | complex forms, energies, forces and tangents: device.
    """

    def compute(device: torch.device) -> Any:
        mesh = square(device)
        x = mesh.points
        a = torch.cos(x[:, 0])
        k = 1 + torch.arange(mesh.n_elements, device=device) / 10
        anisotropic = torch.stack([1 + a, 0 * a, a, 2 + a], 1).view(-1, 2, 2)
        data = {"point_data": {"a": a}}
        convection = Convection.from_mesh(mesh)
        u = 0.1 * torch.sin(x)
        body = NeoHookeanModel.from_mesh(mesh)
        return [
            tm.LaplaceElementAssembler.from_mesh(mesh)(),
            tm.MassElementAssembler.from_mesh(mesh)(),
            tm.ScaledMassElementAssembler.from_mesh(mesh)(point_data={"c": a}),
            tm.AnisotropicLaplaceElementAssembler.from_mesh(mesh)(point_data={"A": anisotropic}),
            tm.LinearElasticityElementAssembler.from_mesh(mesh, E=2.0, nu=0.3)(),
            convection(**data, element_data={"k": k.double()}, scalar_data={"s": 2.0}),
            tm.const_node_assembler(2.0).from_mesh(mesh)(),
            tm.func_node_assembler(lambda x: x[0] ** 2).from_mesh(mesh)(),
            Flux.from_mesh(mesh)(**data),
            Flux.from_mesh(mesh, "left")(**data),
            Wall.from_mesh(mesh)(),
            tm.robin_operator(mesh, coeff=1.0 + 2.0j),
            tm.port_source(mesh, incident=3.0),
            body.energy(u),
            body.internal_force(u),
            body.tangent(u),
        ]

    check(compute, device)


def test_mixed_systems(device: torch.device) -> None:
    """features | MixedElementAssembler, Field, BlockLayout: device."""

    def compute(device: torch.device) -> Any:
        mesh = square(device, 2).raised(2)
        form = OSEEN[2].from_mesh(mesh)
        K = form(point_data={"w": mesh.points}, scalar_data={"k": 0.7})
        x = form.layout.join({"u": mesh.points, "p": mesh.points[:, 0]})
        return K, x, form.layout.split(x)["u"], form.at_nodes(x)["p"]

    check(compute, device)


def test_nonlinear_forms_of_several_fields(device: torch.device) -> None:
    """features | MixedNodeAssembler, MixedFacetAssembler, MixedFacetBilinearAssembler: device."""

    def compute(device: torch.device) -> Any:
        mesh = square(device, 2).raised(3)
        body, flow, pressure = (
            of_order(cls, 2, 3).from_mesh(mesh) for cls in (Rubber, NavierStokes, Follower)
        )
        at = body.layout.points(mesh)
        x = body.layout.join({"u": torch.sin(at["u"]) / 9, "p": at["p"][:, 0]})
        fields = {"point_data": body.at_nodes(x)}
        mu, k = ({"scalar_data": {name: 0.7}} for name in ("mu", "k"))
        slip = of_order(tm.MixedFacetBilinearAssembler, 2, 3).from_mesh(mesh)
        return [
            *(body.energy(**fields, **mu), body.internal_force(**fields, **mu)),
            *(body.tangent(**fields, **mu), flow(**fields, **k), flow.tangent(**fields, **k)),
            *(pressure(**fields), pressure.tangent(**fields)),
            slip(func=lambda u, v, n: (u @ n) * (v @ n)),
        ]

    check(compute, device)


def test_formulas(device: torch.device) -> None:
    """features | sym, skew, strain, determinant, isotropic_stress, deviatoric_stress: device.
    features | deviatoric_stress_norm, voigt_shape_grad, voigt_stiffness, lame: device.
    """

    def compute(device: torch.device) -> Any:
        A = torch.cos(torch.arange(27.0, dtype=f64, device=device)).view(3, 3, 3)
        E = torch.tensor(2.0, dtype=f64, device=device)
        return [
            tm.sym(A),
            tm.skew(A),
            tm.strain(A),
            tm.determinant(A),
            tm.isotropic_stress(tm.sym(A), E, 0.3),
            tm.deviatoric_stress(A),
            tm.deviatoric_stress_norm(A),
            tm.voigt_shape_grad(A[0, 0]),
            tm.voigt_stiffness(E, 0.3, 3),
            tm.functional.lame(E, 0.3),
        ]

    check(compute, device)


def system(device: torch.device) -> tuple[tm.Mesh, tm.SparseMatrix, tm.SparseMatrix, Tensor]:
    mesh = square(device)
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    M = tm.MassElementAssembler.from_mesh(mesh)()
    return mesh, K, M, M @ torch.sin(3 * mesh.points[:, 0] + 1)


def test_matrices(device: torch.device) -> None:
    """features | SparseMatrix, products with vectors and columns, transposes: device.
    features | sums of matrices, blocks of matrices, reductions, diagonal: device.
    """

    def compute(device: torch.device) -> Any:
        _, K, M, f = system(device)
        return [
            K @ f,
            K @ torch.stack([f, 2 * f], 1),
            K.T @ f,
            f @ K,
            K + 2 * M,
            K * M,
            tm.SparseMatrix.combine([[K, M], [M, K]]),
            K.sum(),
            K.sum(0),
            K.norm(),
            K.diagonal(),
            K.to_dense(),
        ]

    check(compute, device)


def test_constraints(device: torch.device) -> None:
    """features | Condenser, MultiPoint, periodic_pairs, rigid_modes: device."""

    def compute(device: torch.device) -> Any:
        mesh, K, _, f = system(device)
        held = tm.Condenser(mesh.boundary_mask, mesh.points[:, 1])
        K_i, f_i = held(K, f)
        translations = torch.eye(2, dtype=f64, device=device)[:1]
        slave, master = periodic_pairs(mesh.points, translations)
        tied = MultiPoint(mesh.n_points, slave, master)
        K_r, f_r = tied(K, f)
        return K_i, f_i, held.recover(f_i), K_r, f_r, tied.recover(f_r), rigid_modes(mesh.points)

    check(compute, device)


SOLVES: list[dict[str, Any]] = [
    {},
    {"method": "cg"},
    {"method": "minres"},
    {"method": "gmres"},
    {"method": "bicgstab"},
    {"method": "cg", "preconditioner": "multilevel"},
]


@pytest.mark.parametrize("options", SOLVES, ids=str)
def test_solves(device: torch.device, options: dict[str, Any]) -> None:
    """One and several right-hand sides, and gradients.

    features | method direct, method cg, method minres, method gmres, method bicgstab: device.
    features | method auto, preconditioner jacobi, preconditioner multilevel: device.
    features | several right-hand sides: device.
    """

    def compute(device: torch.device) -> Any:
        _, K, M, f = system(device)
        values = (K + M).values.requires_grad_()
        A = (K + M)._with_values(values)
        x = A.solve(f, tol=1e-12, **options)
        columns = A.solve(torch.stack([f, f * f], 1), tol=1e-12, **options)
        (x.sum() + (columns**2).sum()).backward()
        return x, columns, values.grad

    check(compute, device)


def test_null_space(device: torch.device) -> None:
    """features | null_space: device."""

    def compute(device: torch.device) -> Any:
        _, K, _, f = system(device)
        return K.solve(f - f.mean(), null_space="constants", tol=1e-12)

    check(compute, device)


def test_eigenvalues(device: torch.device) -> None:
    """features | eigsh, eigsh with a mass: device."""

    def compute(device: torch.device) -> Any:
        _, K, M, _ = system(device)
        return K.eigsh(3, "SA")[0], K.eigsh(3, "SA", M=M)[0]

    check(compute, device)


def test_newton(device: torch.device) -> None:
    """features | newton: device."""

    def compute(device: torch.device) -> Any:
        mesh = square(device)
        form = tm.ElementAssembler.from_mesh(mesh)
        given = {"func": lambda gradu: torch.sqrt(1 + gradu @ gradu), "unknown": "u"}
        return tm.newton(
            lambda u: form.internal_force(point_data={"u": u}, **given),
            lambda u: form.tangent(point_data={"u": u}, **given),
            0 * mesh.points[:, 0],
            condenser=tm.Condenser(mesh.boundary_mask, mesh.points[:, 0] ** 2),
        )

    check(compute, device)


def test_steps_in_time(device: torch.device) -> None:
    """features | ThetaMethod, Newmark, GeneralizedAlpha, Motion: device."""

    def compute(device: torch.device) -> Any:
        mesh, K, M, f = system(device)
        held = tm.Condenser(mesh.boundary_mask)
        heat = ThetaMethod(M, K, 0.1, condenser=held).step(f)
        motions = []
        for method in (Newmark, GeneralizedAlpha):
            body = method(M, K, 0.1, condenser=held)
            motion = body.step(body.start(f, 0 * f))
            motions += [motion.u, motion.v, motion.a]
        return heat, motions

    check(compute, device)


SHARDED: list[dict[str, Any]] = [*SOLVES, {"method": "direct"}, {"preconditioner": "schwarz"}]


def sharded(device_mesh: DeviceMesh, elsewhere: str) -> list[Tensor]:
    """What ranks compute while what names no device lands elsewhere."""
    with torch.device(elsewhere):
        mesh = square(torch.device("cpu"))
        dmesh = dmesh_of(mesh, device_mesh)
        c = (1 + mesh.points[:, 0]).requires_grad_()
        form = distributed(tm.ScaledMassElementAssembler).from_mesh(dmesh)
        M = form(point_data={"c": c})
        K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
        f = tm.distributed_node_assemble(tm.const_node_assembler(1.0), dmesh)
        A, b = tm.Condenser(mesh.boundary_mask, mesh.points[:, 1])(K + M, f)
        x = [A.solve(b, rtol=1e-12, **options) for options in SHARDED]
        dmesh.sum(x[0] ** 2).backward()
        found = [dmesh.gather(K @ f), K.eigsh(2, "SA", M=M)[0], A.T @ b, c.grad, K.sum()]
        sides = MultiPoint(K, *periodic_pairs(dmesh, torch.eye(2, dtype=f64, device="cpu")))
        K_r, f_r = sides(K, f, f)
        found += [dmesh.gather(sides.recover(K_r @ f_r))]
        gathered = [A.layout.vectors.gather(y) for y in x]
        return [y.detach() for y in [*found, *gathered]]


def test_ranks(ranks: RankPool) -> None:
    """On the CPU: ranks of one GPU each need more than one.

    features | DistributedMesh, DSparseMatrix, distributed, distributed_element_assemble: device.
    features | distributed_node_assemble, preconditioner schwarz, Schwarz, Jacobi: device.
    """
    for found, expected in zip(ranks(2, sharded, "meta"), ranks(2, sharded, "cpu"), strict=True):
        for x, right in zip(found, expected, strict=True):
            torch.testing.assert_close(x, right, rtol=1e-9, atol=1e-9)
