"""`@distributed`: an assembler class that works on a `DistributedMesh`."""

from typing import Any, TypeVar

from tensormesh.assemble.base import Assembler
from tensormesh.assemble.element import ElementAssembler
from tensormesh.distributed.assemble import FAMILIES, ShardedAssembly
from tensormesh.distributed.mesh import DistributedMesh

AssemblerClass = TypeVar("AssemblerClass", bound=type[Assembler])


def distributed(cls: AssemblerClass) -> AssemblerClass:
    """Class that assembles the form of `cls` on all parts of a `DistributedMesh`.

    Parameters
    ----------
    cls
        Subclass of `ElementAssembler`, `NodeAssembler` or `FacetAssembler`; it is not changed.

    Returns
    -------
    type
        Subclass ``Distributed<Name>``. Its ``from_mesh`` takes a `DistributedMesh`; the call gives a
        `DSparseMatrix`, or the owned slice of a vector. Calling an instance again re-uses the
        geometry and the symbolic phase.

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
            f"@distributed needs a subclass of ElementAssembler, NodeAssembler or FacetAssembler, "
            f"got {cls!r}"
        )

    def from_mesh(
        made: type[Any],
        mesh: DistributedMesh,
        *args: Any,
        quadrature_order: int = 2,
        project: str = "reduce",
        **kwargs: Any,
    ) -> Any:
        if not isinstance(mesh, DistributedMesh):
            raise TypeError(
                f"{made.__name__}.from_mesh needs a DistributedMesh, got {type(mesh).__name__}"
            )
        options = _positional(made, args, quadrature_order, project)
        assembly = ShardedAssembly(cls, mesh, *options.pop("rule"), {**options, **kwargs})
        instance = made.__new__(made)
        instance.__dict__.update(assembly.assemblers[0].__dict__)
        object.__setattr__(instance, "_assembly", assembly)
        return instance

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        names = ("points", "func", "point_data", "element_data", "scalar_data")
        if not issubclass(cls, ElementAssembler):
            names = ("points", "func", "point_data", "scalar_data")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        given.pop("batch_size", None)
        assembly: ShardedAssembly = self._assembly
        if issubclass(cls, ElementAssembler):
            return assembly.matrix(given)
        return assembly.vector(given)

    members = {
        "__doc__": f"`{cls.__name__}` on a `DistributedMesh`.",
        "__module__": cls.__module__,
        "from_mesh": classmethod(from_mesh),
        "__call__": call,
    }
    return type(f"Distributed{cls.__name__}", (cls,), members)  # type: ignore[return-value]


def _positional(
    cls: type[Assembler], args: tuple[Any, ...], quadrature_order: int, project: str
) -> dict[str, Any]:
    """Positional arguments of ``from_mesh`` in the order of the serial class."""
    facet = "boundary_mask" in cls.__mro__[1].from_mesh.__code__.co_varnames
    names = [*(["boundary_mask"] if facet else []), "quadrature_order", "project"]
    if len(args) > len(names):
        raise TypeError(
            f"{cls.__name__}.from_mesh: give the arguments of __post_init__ by name, got {args!r}"
        )
    options: dict[str, Any] = dict(zip(names, args, strict=False))
    rule = options.pop("quadrature_order", quadrature_order), options.pop("project", project)
    return {**options, "rule": rule}
