"""`@distributed`: an assembler class that works on a `DistributedMesh`."""

import inspect
from typing import Any, TypeVar

from tensormesh.assemble.base import Assembler, check_batch_size
from tensormesh.assemble.element import ElementAssembler
from tensormesh.assemble.has_energy import HasEnergy
from tensormesh.assemble.mixed_assembler import MixedAssembler
from tensormesh.assemble.mixed_element import MixedElementAssembler
from tensormesh.assemble.tangent import AssemblesTangent
from tensormesh.distributed.assemble import BILINEAR, FAMILIES, ShardedAssembly
from tensormesh.distributed.collectives import agree
from tensormesh.distributed.mesh import DistributedMesh

AssemblerClass = TypeVar("AssemblerClass", bound=type[Assembler])


def distributed(cls: AssemblerClass) -> AssemblerClass:
    """Class that assembles the form of `cls` on all parts of a `DistributedMesh`.

    Parameters
    ----------
    cls
        Subclass of `ElementAssembler`, `NodeAssembler`, `FacetAssembler`,
        `FacetBilinearAssembler` or of one of these for several fields, `MixedElementAssembler`
        etc.; it is not changed.

    Returns
    -------
    type
        Subclass ``Distributed<Name>``. Its ``from_mesh`` takes a `DistributedMesh`; the call gives
        a `DSparseMatrix`, or the owned slice of a vector, and so do ``tangent`` and
        ``internal_force``; ``energy`` sums over all parts. Calling
        an instance again re-uses the geometry and the symbolic phase.

    Raises
    ------
    TypeError
        If `cls` is of no such family.

    Examples
    --------
    >>> import tensormesh as tm
    >>> from tensormesh.distributed import distributed
    >>> dmesh = tm.DistributedMesh(tm.Mesh.gen_rectangle(chara_length=0.5), num_partitions=2)
    >>> distributed(tm.LaplaceElementAssembler).from_mesh(dmesh)().shape
    (9, 9)
    """
    if not (isinstance(cls, type) and issubclass(cls, FAMILIES)):
        raise TypeError(
            "@distributed needs a subclass of ElementAssembler, NodeAssembler, FacetAssembler, "
            "FacetBilinearAssembler, or of MixedElementAssembler, MixedNodeAssembler, "
            f"MixedFacetAssembler, MixedFacetBilinearAssembler, got {cls!r}"
        )

    def from_mesh(made: Any, mesh: DistributedMesh, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mesh, DistributedMesh):
            raise TypeError(
                f"{made.__name__}.from_mesh needs a DistributedMesh, got {type(mesh).__name__}"
            )
        assembly = ShardedAssembly(cls, mesh, *args, **kwargs)
        instance = made.__new__(made)
        # The parameters are those of the first part's assembler, which the others share.
        instance.__dict__.update(assembly.assemblers[0].__dict__)
        object.__setattr__(instance, "_assembly", assembly)
        return instance

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        assembly: ShardedAssembly = self._assembly
        with agree(assembly.dmesh.device_mesh):
            given = dict(inspect.signature(cls.__call__).bind(self, *args, **kwargs).arguments)
            del given["self"]
            check_batch_size(given.get("batch_size"))
            if not issubclass(cls, (ElementAssembler, MixedElementAssembler)):
                given.pop("batch_size", None)  # which changes nothing
        if issubclass(cls, BILINEAR):
            return assembly.matrix(given)
        return assembly.vector(given)

    members: dict[str, Any] = {
        "__doc__": f"`{cls.__name__}` on a `DistributedMesh`.",
        "__module__": cls.__module__,
        "from_mesh": classmethod(from_mesh),
        "__call__": call,
    }
    if issubclass(cls, AssemblesTangent):
        members["_assembled_tangent"] = lambda self, *call: self._assembly.tangent(*call)
    if issubclass(cls, HasEnergy):
        members["_total_energy"] = lambda self, call: self._assembly.energy(call)
        members["_assembled_force"] = lambda self, *call: self._assembly.internal_force(*call)
        members["_sampled"] = lambda self, call: self._assembly.sampled(call)
    if issubclass(cls, MixedAssembler):
        members["_at_nodes"] = lambda self, x: self._assembly.at_nodes(x)
    return type(f"Distributed{cls.__name__}", (cls,), members)  # type: ignore[return-value]
