"""The data of one call, as each part of this process needs them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.per_point import PerQuadraturePoint
from tensormesh.distributed.collectives import agree, replicated
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.forms import FormName, Item, agree_on_forms
from tensormesh.distributed.mesh import DistributedMesh

CALL = ("points", "func", "point_data", "element_data", "scalar_data", "batch_size")


def slices_of_call(dmesh: DistributedMesh, call: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The data of a call for each part. **Collective**: the ranks agree on their forms."""
    with agree(dmesh.device_mesh):
        unknown = set(call) - set(CALL)
        if unknown:
            raise TypeError(f"call_kwargs: unknown {sorted(unknown)}; expected {list(CALL)}")
        points = dmesh.moved_points(call.get("points"))
        labels = {k: f"point_data[{k!r}]" for k in _of(call, "point_data")}
        nodal = {label: _tensor(label, call["point_data"][k]) for k, label in labels.items()}
        if points is not None:
            nodal["points"] = _tensor("points", points)
        cellwise = _by_type(dmesh, _of(call, "element_data"))
        marked = {k for k, x in _of(call, "element_data").items() if _is_marked(x)}
        scalars = {k: shared(x, dmesh.device_mesh) for k, x in _of(call, "scalar_data").items()}
    nodal_forms = agree_on_forms(
        [dmesh.vectors.item(x, name) for name, x in nodal.items()], dmesh.device_mesh
    )
    local = {
        name: dmesh.vectors.local(x, form)
        for (name, x), form in zip(nodal.items(), nodal_forms, strict=True)
    }
    cells = _cell_slices(dmesh, cellwise)
    calls = []
    for i, part in enumerate(dmesh.parts):
        device = part.mesh.device
        here = {name: x[part.to_local].to(device) for name, x in local.items()}
        calls.append(
            {
                "points": here.get("points"),
                "func": call.get("func"),
                "point_data": {k: here[label] for k, label in labels.items()},
                "element_data": {
                    k: {kind: PerQuadraturePoint(x) for kind, x in by_type.items()}
                    if k in marked
                    else by_type
                    for k, by_type in cells[i].items()
                },
                "scalar_data": scalars,
                "batch_size": call.get("batch_size"),
            }
        )
    return calls


def _by_type(
    dmesh: DistributedMesh, element_data: Mapping[str, Any]
) -> dict[str, dict[str, Tensor]]:
    kinds = list(dmesh.n_cells_by_type)
    result = {}
    for name, given in element_data.items():
        if not isinstance(given, Mapping):
            if len(kinds) > 1:
                raise ValueError(
                    f"element_data[{name!r}]: the mesh has cells of types {kinds}; give "
                    "{type: values} with an entry for each"
                )
            given = {kinds[0]: given}
        if set(given) != set(kinds):
            raise ValueError(
                f"element_data[{name!r}] has types {sorted(given)}, the mesh {sorted(kinds)}"
            )
        values = {k: _unmarked(given[k]) for k in kinds}
        result[name] = {k: _tensor(f"element_data[{name!r}]", x) for k, x in values.items()}
    return result


def _cell_slices(
    dmesh: DistributedMesh, data: dict[str, dict[str, Tensor]]
) -> list[dict[str, dict[str, Tensor]]]:
    keys = [(name, kind) for name, by_type in data.items() for kind in by_type]
    items = [_cell_item(dmesh, name, kind, data[name][kind]) for name, kind in keys]
    forms = dict(zip(keys, agree_on_forms(items, dmesh.device_mesh), strict=True))
    result = []
    for part in dmesh.parts:
        here: dict[str, dict[str, Tensor]] = {name: {} for name in data}
        cells = part.mesh.cell_data["orig_cid"]
        for (name, kind), form in forms.items():
            x = data[name][kind].to(part.mesh.device)
            x = shared(x, dmesh.device_mesh) if form == "global" else x
            if kind not in part.mesh.top_cells():
                here[name][kind] = x[:0]
            else:
                here[name][kind] = x[cells[kind]] if form == "global" else x
        result.append({name: _with_present_types(by_type) for name, by_type in here.items()})
    return result


def _cell_item(dmesh: DistributedMesh, name: str, kind: str, x: Tensor) -> Item:
    lengths: dict[FormName, int] = {"global": dmesh.n_cells_by_type[kind]}
    if dmesh.in_job:
        cells = dmesh.parts[0].mesh.top_cells()
        lengths["part"] = cells[kind].shape[0] if kind in cells else 0
    return Item.of(x, f"element_data[{name!r}] on {kind}", lengths)


def shared(x: Any, device_mesh: DeviceMesh) -> Any:
    """`x`, as sharded work uses what is the same on all ranks: its gradient is summed over them."""
    return replicated(x, device_mesh) if isinstance(x, Tensor) and x.requires_grad else x


def _of(call: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    data = call.get(group) or {}
    if not isinstance(data, Mapping):
        raise TypeError(f"{group} must be a dict, got {type(data).__name__}")
    return data


def _is_marked(given: Any) -> bool:
    """Whether values per cell vary inside it; of several types, all do or none."""
    of_types = list(given.values()) if isinstance(given, Mapping) else [given]
    marks = {isinstance(x, PerQuadraturePoint) for x in of_types}
    if len(marks) > 1:
        raise TypeError("element_data: mark the values of all cell types by PerQuadraturePoint")
    return marks == {True}


def _unmarked(given: Any) -> Any:
    return given.values if isinstance(given, PerQuadraturePoint) else given


def _tensor(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor) or x.dim() == 0:
        raise TypeError(f"{name} must be a tensor with a value per node or cell, got {x!r}")
    return x


def _with_present_types(by_type: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values on the types that the part has, in whose graph those on the others are too.

    The backward of shared data is collective: also a part without cells of their type takes part.
    """
    present = {kind: x for kind, x in by_type.items() if x.shape[0]}
    first = next(iter(present))
    for x in by_type.values():
        if x.requires_grad and not x.shape[0]:
            present[first] = present[first] + x.sum()
    return present
