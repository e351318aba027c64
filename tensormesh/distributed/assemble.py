"""A weak form on all parts, its contributions summed at the owners of their rows."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tensormesh.assemble.base import Assembler
from tensormesh.assemble.element import ElementAssembler
from tensormesh.assemble.facet import FacetAssembler
from tensormesh.assemble.facet_bilinear import FacetBilinearAssembler
from tensormesh.assemble.has_energy import HasEnergy
from tensormesh.assemble.mixed_assembler import MixedAssembler
from tensormesh.assemble.mixed_element import MixedElementAssembler
from tensormesh.assemble.mixed_facet import MixedFacetAssembler, MixedFacetBilinearAssembler
from tensormesh.assemble.mixed_node import MixedNodeAssembler
from tensormesh.assemble.node import NodeAssembler
from tensormesh.assemble.per_point import PerQuadraturePoint
from tensormesh.assemble.tangent import DATA
from tensormesh.distributed.call_data import shared, slices_of_call
from tensormesh.distributed.collectives import (
    agree,
    all_gather_ints,
    all_reduce_sum,
    raise_together,
    replicated,
)
from tensormesh.distributed.forms import agree_on_forms
from tensormesh.distributed.matrix import DSparseMatrix
from tensormesh.distributed.mesh import DistributedMesh
from tensormesh.distributed.part import Part

# From an assembler, its data and its function to numbers and how many unknowns a node has.
Evaluate = Callable[..., tuple[Tensor, int]]
Samples = Mapping[str, Tensor]
Result = TypeVar("Result")
_DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


class ShardedAssembly:
    """A weak form on the parts of this process. **Making one is collective.**

    Parameters
    ----------
    assembler_cls
        Subclass of `ElementAssembler`, `NodeAssembler`, `FacetAssembler`,
        `FacetBilinearAssembler` or of one of these for several fields, `MixedElementAssembler` etc.
    dmesh
        The mesh.
    *args, **kwargs
        Further arguments of the class's ``from_mesh``. Tensors that require grad get their full
        gradient on every rank. A mask of facets is given in any form of nodal data.

    Raises
    ------
    TypeError, ValueError, KeyError
        On every rank, where one of them cannot make the assembler.
    """

    def __init__(
        self, assembler_cls: type[Assembler], dmesh: DistributedMesh, *args: Any, **kwargs: Any
    ) -> None:
        if not isinstance(dmesh, DistributedMesh):
            raise TypeError(f"dmesh must be a DistributedMesh, got {type(dmesh).__name__}")
        self.dmesh = dmesh
        with agree(dmesh.device_mesh):
            if dist.is_initialized() and not dmesh.in_job:
                raise ValueError(
                    f"dmesh has {dmesh.num_partitions} parts in one process, since it was made "
                    "before init_process_group: make it afterwards, one part a rank"
                )
            if not (isinstance(assembler_cls, type) and issubclass(assembler_cls, FAMILIES)):
                raise TypeError(
                    "assembler_cls must be an element, node or facet assembler class, got "
                    + getattr(assembler_cls, "__name__", f"a {type(assembler_cls).__name__}")
                )
            given = (
                [shared(x, dmesh.device_mesh) for x in args],
                {k: shared(x, dmesh.device_mesh) for k, x in kwargs.items()},
            )
            bound = inspect.signature(assembler_cls.from_mesh).bind(None, *given[0], **given[1])
        masks = self._facet_masks(bound.arguments.get("boundary_mask"))
        self.assemblers: list[Assembler] = []
        with agree(dmesh.device_mesh):
            for part, mask in zip(dmesh.parts, masks, strict=True):
                chosen = {} if mask is None else {"boundary_mask": mask}
                if self.assemblers:
                    self.assemblers.append(self.assemblers[0]._on(part.mesh, **chosen))
                    continue
                bound.arguments.update(mesh=part.mesh, **chosen)
                self.assemblers.append(assembler_cls.from_mesh(*bound.args, **bound.kwargs))

    def _facet_masks(self, mask: Any) -> list[Any]:
        """The choice of facets as each part needs it."""
        vectors = self.dmesh.vectors
        items = [vectors.item(mask, "boundary_mask")] if isinstance(mask, Tensor) else []
        forms = agree_on_forms(items, self.dmesh.device_mesh)
        if not isinstance(mask, Tensor):
            return [mask] * len(self.dmesh.parts)
        local = vectors.local(mask, forms[0])
        return [local[part.to_local].to(part.mesh.device) for part in self.dmesh.parts]

    # -- one call --------------------------------------------------------------------------

    def matrix(self, call: Mapping[str, Any]) -> DSparseMatrix:
        """Row-sharded matrix. **Collective.**"""

        def blocks(asm: Assembler, data: Any, func: Any) -> tuple[Tensor, int]:
            if not isinstance(asm, BILINEAR):
                raise TypeError(f"{type(asm).__name__} is no assembler of a bilinear form")
            return asm._block_values(func, data)

        return self._matrix(blocks, call)

    def tangent(self, call: Mapping[str, Any], unknown: str | None) -> DSparseMatrix:
        """Row-sharded derivative of the form by a field. **Collective.**"""

        def blocks(asm: Any, data: Any, func: Any) -> tuple[Tensor, int]:
            values: tuple[Tensor, int] = asm._tangent_values(func, data, unknown)
            return values

        return self._matrix(blocks, call)

    def _matrix(self, blocks: Evaluate, call: Mapping[str, Any]) -> DSparseMatrix:
        routed = self.dmesh.routed
        if routed is not None:
            only = self.assemblers[0]
            only._topology = only._topology.over(routed)
        contributions, h = self._contributions(blocks, call)
        unknowns = self.assemblers[0]._unknowns(h)
        layout, expansion = self.dmesh.layout(unknowns), self.dmesh.expansion(unknowns)
        values = expansion.values(self.dmesh.plan.route(contributions))
        return DSparseMatrix.from_layout(layout, values)

    def at_nodes(self, x: Tensor) -> dict[str, Tensor]:
        """Fields of a mixed solution at owned nodes, from its owned slice. **Collective.**"""
        n_local = self.dmesh.index_map.n_local
        on_parts = self.dmesh.part_values(x)
        with agree(self.dmesh.device_mesh):
            found: dict[str, Tensor] = {}
            for asm, part, values in zip(self.assemblers, self.dmesh.parts, on_parts, strict=True):
                fields = cast(MixedAssembler, asm)._at_nodes(values.flatten().to(asm.device))
                for name, of_part in fields.items():
                    of_part = of_part.to(self.dmesh.device)
                    if name not in found:
                        found[name] = of_part.new_zeros(n_local, *of_part.shape[1:])
                    found[name][part.to_local] = of_part
        return {name: local[: self.dmesh.index_map.n_owned] for name, local in found.items()}

    def vector(self, call: Mapping[str, Any]) -> Tensor:
        """Owned slice ``[n_owned * H]`` of the vector. **Collective.**"""

        def rows(asm: Assembler, data: Any, func: Any) -> tuple[Tensor, int]:
            if not isinstance(asm, LINEAR):
                raise TypeError(f"{type(asm).__name__} is no assembler of a linear form")
            return asm._node_values(func, data)

        return self._vector(rows, call)

    def internal_force(self, call: Mapping[str, Any], unknown: str | None) -> Tensor:
        """Owned slice ``[n_owned * H]`` of the derivative of the energy. **Collective.**"""

        def rows(asm: Any, data: Any, func: Any) -> tuple[Tensor, int]:
            values: tuple[Tensor, int] = asm._force_values(func, data, unknown)
            return values

        return self._vector(rows, call)

    def _vector(self, rows: Evaluate, call: Mapping[str, Any]) -> Tensor:
        contributions, h = self._contributions(rows, call)
        n_local, device = self.dmesh.index_map.n_local, self.dmesh.device
        local = torch.zeros(n_local, h, dtype=contributions[0].dtype, device=device)
        for part, values in zip(self.dmesh.parts, contributions, strict=True):
            local = local.index_add(0, part.to_local, values.to(device))
        return self.dmesh.halo.scatter_reverse(local).flatten()

    def energy(self, call: Mapping[str, Any]) -> Tensor:
        """Energy of the whole mesh, 0-d, the same on every rank. **Collective.**"""

        def of_part(asm: Assembler, data: Any, func: Any) -> tuple[Tensor, int]:
            if not isinstance(asm, HasEnergy):
                raise TypeError(f"{type(asm).__name__} has no energy")
            return asm._energy(func, data), 1

        parts, _ = self._contributions(of_part, call)
        here = torch.stack([part.to(self.dmesh.device) for part in parts]).sum()
        return all_reduce_sum(here, self.dmesh.device_mesh)

    def sampled(self, call: Mapping[str, Any]) -> dict[str, PerQuadraturePoint]:
        """Values of a function at quadrature points, of the cells of this process. **Collective.**

        In a job those of the rank's part, else in the order of the global mesh.
        """

        def of_part(asm: Any, data: Any, func: Any) -> Samples:
            return {kind: x.values for kind, x in asm._samples(func, data).items()}

        calls, parameters = slices_of_call(self.dmesh, call), self._parameters()
        with agree(self.dmesh.device_mesh):
            samples = self._on_parts(of_part, calls, parameters)
        return {
            kind: PerQuadraturePoint(self._of_cells(samples, kind))
            for kind in self.dmesh.n_cells_by_type
        }

    def _of_cells(self, samples: Sequence[Samples], kind: str) -> Tensor:
        """Values ``[E, Q, ...]`` on the cells of a type; a part may have no such cell."""
        like = next(iter(samples[0].values()))
        n_points = len(self.assemblers[0]._table(kind).weights)
        empty = like.new_zeros(0, n_points, *like.shape[2:])
        if self.dmesh.in_job:
            return samples[0].get(kind, empty)
        parts = zip(self.dmesh.parts, samples, strict=True)
        here = [(p.mesh.cell_data["orig_cid"][kind], s[kind]) for p, s in parts if kind in s]
        values = torch.cat([empty, *(x.to(empty.device) for _, x in here)])
        return values[torch.argsort(torch.cat([cells.to(empty.device) for cells, _ in here]))]

    def _contributions(
        self, evaluate: Evaluate, call: Mapping[str, Any]
    ) -> tuple[list[Tensor], int]:
        """Values of each part and the number of unknowns a node, checked on all ranks."""
        calls = slices_of_call(self.dmesh, call)
        parameters = self._parameters()
        error: Exception | None = None
        results: list[tuple[Tensor, int]] = []
        try:
            results = self._on_parts(evaluate, calls, parameters)
        except Exception as failure:
            error = failure  # raised below, on all ranks together
        facts = [-1, -1] if error else [results[0][1], _DTYPES.index(results[0][0].dtype)]
        table = all_gather_ints(facts, self.dmesh.device_mesh)
        if bool((table < 0).any()):
            raise_together(error, self.dmesh.device_mesh)
        if bool((table != table[0]).any()):
            raise ValueError(
                "the form gives different numbers of unknowns or dtypes on different ranks "
                f"({table.tolist()}): pass the same data on all"
            )
        return [values for values, _ in results], results[0][1]

    def _on_parts(
        self,
        evaluate: Callable[..., Result],
        calls: list[dict[str, Any]],
        parameters: dict[str, Tensor],
    ) -> list[Result]:
        def run(part: Part, asm: Assembler, call: dict[str, Any]) -> Result:
            try:
                with torch.set_grad_enabled(grad), substituted(asm, parameters):
                    asm._set_points(call["points"])
                    data = [call[k] for k in (*DATA, "batch_size")]
                    return evaluate(asm, asm._data(*data), call["func"])
            except Exception as error:
                error.add_note(f"in part {part.number}")
                raise

        grad = torch.is_grad_enabled()
        jobs = list(zip(self.dmesh.parts, self.assemblers, calls, strict=True))
        if len(jobs) == 1 or not self.dmesh.one_thread_a_part:
            return [run(*job) for job in jobs]
        with ThreadPoolExecutor(len(jobs)) as pool:
            return list(pool.map(lambda job: run(*job), jobs))

    def _parameters(self) -> dict[str, Tensor]:
        """Parameters of the form, as sharded work uses replicated ones."""
        named = self.assemblers[0].named_parameters()
        return {k: replicated(p, self.dmesh.device_mesh) for k, p in named if p.requires_grad}


BILINEAR = (
    *(ElementAssembler, FacetBilinearAssembler),
    *(MixedElementAssembler, MixedFacetBilinearAssembler),
)
LINEAR = (NodeAssembler, FacetAssembler, MixedNodeAssembler, MixedFacetAssembler)
FAMILIES = (*BILINEAR, *LINEAR)


@contextmanager
def substituted(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Let the parameters of `module`, by path, be other tensors for a while."""
    saved: Sequence[tuple[dict[str, Any], str, Any]] = [
        (module.get_submodule(path.rpartition(".")[0])._parameters, path.rpartition(".")[2], x)
        for path, x in tensors.items()
    ]
    before = [(slots, name, slots[name]) for slots, name, _ in saved]
    try:
        for slots, name, x in saved:
            slots[name] = x.to(slots[name].device)
        yield
    finally:
        for slots, name, x in before:
            slots[name] = x
