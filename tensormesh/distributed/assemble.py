"""A weak form on all parts, its contributions summed at the owners of their rows."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tensormesh.assemble.base import Assembler
from tensormesh.assemble.element import ElementAssembler
from tensormesh.assemble.facet import FacetAssembler
from tensormesh.assemble.facet_bilinear import FacetBilinearAssembler
from tensormesh.assemble.node import NodeAssembler
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

_DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


class ShardedAssembly:
    """A weak form on the parts of this process. **Making one is collective.**

    Parameters
    ----------
    assembler_cls
        Subclass of `ElementAssembler`, `NodeAssembler`, `FacetAssembler` or
        `FacetBilinearAssembler`.
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
            if not isinstance(asm, ElementAssembler | FacetBilinearAssembler):
                raise TypeError(f"{type(asm).__name__} is no assembler of a bilinear form")
            return asm._block_values(func, data)

        contributions, h = self._contributions(blocks, call)
        values = self.dmesh.plan.expansion(h).values(self.dmesh.plan.route(contributions))
        return DSparseMatrix.from_layout(self.dmesh.layout(h), values)

    def vector(self, call: Mapping[str, Any]) -> Tensor:
        """Owned slice ``[n_owned * H]`` of the vector. **Collective.**"""

        def rows(asm: Assembler, data: Any, func: Any) -> tuple[Tensor, int]:
            if not isinstance(asm, NodeAssembler | FacetAssembler):
                raise TypeError(f"{type(asm).__name__} is no assembler of a linear form")
            return asm._node_values(func, data)

        contributions, h = self._contributions(rows, call)
        n_local, device = self.dmesh.index_map.n_local, self.dmesh.device
        local = torch.zeros(n_local, h, dtype=contributions[0].dtype, device=device)
        for part, values in zip(self.dmesh.parts, contributions, strict=True):
            local = local.index_add(0, part.to_local, values.to(device))
        return self.dmesh.halo.scatter_reverse(local).flatten()

    def energy(self, call: Mapping[str, Any]) -> Tensor:
        """Energy of the whole mesh, 0-d, the same on every rank. **Collective.**"""

        def of_part(asm: Assembler, data: Any, func: Any) -> tuple[Tensor, int]:
            if not isinstance(asm, ElementAssembler):
                raise TypeError(f"{type(asm).__name__} has no energy")
            return asm._energy(func, data), 1

        parts, _ = self._contributions(of_part, call)
        here = torch.stack([part.to(self.dmesh.device) for part in parts]).sum()
        return all_reduce_sum(here, self.dmesh.device_mesh)

    def _contributions(
        self, evaluate: Callable[..., tuple[Tensor, int]], call: Mapping[str, Any]
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
        evaluate: Callable[..., tuple[Tensor, int]],
        calls: list[dict[str, Any]],
        parameters: dict[str, Tensor],
    ) -> list[tuple[Tensor, int]]:
        def run(part: Part, asm: Assembler, call: dict[str, Any]) -> tuple[Tensor, int]:
            try:
                with torch.set_grad_enabled(grad), substituted(asm, parameters):
                    asm._set_points(call["points"])
                    fields = ("point_data", "element_data", "scalar_data")
                    return evaluate(asm, asm._data(*(call[k] for k in fields)), call["func"])
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


BILINEAR = (ElementAssembler, FacetBilinearAssembler)
FAMILIES = (*BILINEAR, NodeAssembler, FacetAssembler)


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
