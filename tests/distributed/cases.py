"""Meshes, forms and data that the distributed tests share: small, and the same on every rank."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import mesh as distributed_mesh
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.mesh.generators import gen_cube, gen_rectangle

METHODS = ("coordinate", "spectral", "metis")

_MAKE: dict[str, Callable[[], tm.Mesh]] = {
    "tri": lambda: gen_rectangle(n=(6, 5)),
    "quad": lambda: gen_rectangle(n=(6, 5), element_type="quad"),
    "mixed": lambda: gen_rectangle(n=(6, 4), element_type="mixed"),
    "triangle6": lambda: gen_rectangle(n=(4, 3), order=2),
    "tet": lambda: gen_cube(n=(3, 2, 2)),
    "hex": lambda: gen_cube(n=(4, 3, 2), element_type="hex"),
    "wedge": lambda: gen_cube(n=(3, 2, 2), element_type="wedge"),
    "tetra10": lambda: gen_cube(n=(2, 2, 1), order=2),
}
KINDS = tuple(_MAKE)
HIGH_ORDER: dict[str, Callable[[], tm.Mesh]] = {
    "tetra20": lambda: gen_cube(n=(2, 1, 1), order=3),
    "hexahedron64": lambda: gen_cube(n=(2, 2, 1), order=3, element_type="hex"),
    "triangle15": lambda: gen_rectangle(n=(3, 2), order=4),
}
_MAKE.update(HIGH_ORDER)
_MAKE["grid"] = lambda: gen_rectangle(n=(3, 3))
_N_CELLS = 18  # of "grid"
# Cell 8 is inside: all its nodes are also nodes of part 0, so part 1 owns nothing.
NOTHING_OWNED = [int(cell == 8) for cell in range(_N_CELLS)]


def mesh_of(kind: str) -> tm.Mesh:
    """Mesh of some cell type, its inside bent a little so that no two cells are alike."""
    mesh = _MAKE[kind]()
    x = mesh.points
    bump = torch.prod(torch.sin(torch.pi * x), dim=1, keepdim=True)
    shift = torch.stack([torch.cos(3 * x[:, 0] + k) for k in range(mesh.dim)], dim=1)
    if kind not in ("triangle6", "tetra10"):  # curved cells would need care with mid-nodes
        mesh.points = x + 0.03 * bump * shift
    return mesh


class Transport(tm.ElementAssembler):
    """Not symmetric, with every kind of data."""

    def forward(self, u, v, gradu, gradv, x, a, grada, k, s):
        return k * (gradu @ gradv) + s * (a * (x @ gradu) + grada @ gradu) * v


class Reaction(tm.ElementAssembler):
    """Blocks that are not symmetric, two unknowns a node, with nodal data of two components."""

    def forward(self, u, v, gradu, gradv, w):
        return u * v * torch.outer(w, w + 1.0) + (gradu @ gradv) * torch.eye(2, dtype=w.dtype)


class Load(tm.NodeAssembler):
    def forward(self, v, gradv, x, a, k, s):
        return s * k * a * torch.exp(x[0]) * v + gradv[0]


class VectorLoad(tm.NodeAssembler):
    def forward(self, v, x):
        return v * torch.cat([x[:1], 1.0 + x[:1] * x[1:2]])


class Measure(tm.FacetAssembler):
    def forward(self, v):
        return v


class Flux(tm.FacetAssembler):
    def forward(self, v, x, n, a):
        return v[:, None] * (a * (x @ n) * x)


def data_of(mesh: tm.Mesh) -> dict[str, Any]:
    """Nodal, cell-wise and scalar data for `Transport` and `Load`, smooth in the coordinates."""
    x = mesh.points.detach()
    cells = {
        kind: 1.0 + torch.arange(c.shape[0], dtype=x.dtype) / 7.0 % 1.0
        for kind, c in mesh.top_cells().items()
    }
    return {
        "point_data": {"a": torch.cos(x[:, 0]) + x[:, 1]},
        "element_data": {"k": cells},
        "scalar_data": {"s": 0.7},
    }


def two_fields(mesh: tm.Mesh) -> dict[str, Any]:
    """Nodal data for `Reaction`."""
    x = mesh.points.detach()
    return {"point_data": {"w": torch.stack([torch.sin(x[:, 0]), 2.0 + x[:, 1]], dim=1)}}


@st.composite
def cuts(draw: st.DrawFn, size: int) -> list[int]:
    """Part of each cell of ``mesh_of("grid")``: scattered at random, uneven, none empty."""
    n = _N_CELLS - size
    labels = draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n))
    return draw(st.permutations([*labels, *range(size)]))


@contextmanager
def labelled(labels: Sequence[int]) -> Iterator[None]:
    """Cut meshes by given labels, whatever the method."""
    usual = distributed_mesh.partition_cells
    given = torch.tensor(list(labels), dtype=torch.int64)
    distributed_mesh.partition_cells = lambda *_: given
    try:
        yield
    finally:
        distributed_mesh.partition_cells = usual


def dmesh_of(
    mesh: tm.Mesh, device_mesh: DeviceMesh | None, cut: str | Sequence[int] = "coordinate"
) -> tm.DistributedMesh:
    """`mesh` over the ranks, cut by a method or by labels."""
    if isinstance(cut, str):
        return tm.DistributedMesh(mesh, method=cut, device_mesh=device_mesh)
    with labelled(cut):
        return tm.DistributedMesh(mesh, device_mesh=device_mesh)


def outcome(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, str] | None:
    """Name and text of the exception that a call raises; None if it returns."""
    try:
        fn(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


@dataclass(frozen=True)
class Message:
    """A collective that a rank took part in: its name, and dtype and size of its largest tensor."""

    name: str
    dtype: torch.dtype
    numel: int


_COLLECTIVES = (
    "all_to_all_single",
    "all_reduce",
    "all_gather_into_tensor",
    "all_gather",
    "broadcast",
    "batch_isend_irecv",
)


@contextmanager
def recorded() -> Iterator[list[Message]]:
    """Collectives of this rank, in order."""
    messages: list[Message] = []
    usual = {name: getattr(dist, name) for name in _COLLECTIVES}

    def recording(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            largest = max(given, key=Tensor.numel)
            messages.append(Message(name, largest.dtype, largest.numel()))
            return usual[name](*args, **kwargs)

        return call

    try:
        for name in _COLLECTIVES:
            setattr(dist, name, recording(name))
        yield messages
    finally:
        for name, function in usual.items():
            setattr(dist, name, function)


def own(values: Sequence[Tensor], device_mesh: DeviceMesh) -> Tensor:
    """This rank's entry of a list with one a rank."""
    return values[device_mesh.get_local_rank()]
