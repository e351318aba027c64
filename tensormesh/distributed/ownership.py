"""Which part owns a node: one of those that have a cell on it."""

from collections.abc import Callable

import torch
from torch import Tensor

from tensormesh.mesh.mesh import Mesh


def node_owners(mesh: Mesh, labels: Tensor, rule: str = "lowest") -> Tensor:
    """Owning part of each node of `mesh`.

    Parameters
    ----------
    mesh
        The global mesh.
    labels
        Part of each top-dimension cell, int64 ``[n_cells]``, types in order.
    rule
        ``"lowest"``: the lowest part that has a cell on the node; ``"balanced"``: each interface,
        the nodes with one set of parts, goes to the member that owns least so far, larger ones
        first.

    Returns
    -------
    Tensor
        int64 ``[n_points]``; 0 for points that no cell uses.

    Raises
    ------
    ValueError
        If the rule is unknown.
    """
    if rule not in RULES:
        raise ValueError(f"ownership must be one of {', '.join(RULES)}, got {rule!r}")
    return RULES[rule](mesh, labels)


def _lowest(mesh: Mesh, labels: Tensor) -> Tensor:
    beyond = int(labels.max()) + 1
    owner = torch.full((mesh.n_points,), beyond, dtype=torch.int64, device=labels.device)
    for nodes, label in _nodes_and_labels(mesh, labels):
        owner.scatter_reduce_(0, nodes.flatten(), label.repeat_interleave(nodes.shape[1]), "amin")
    return owner.masked_fill_(owner == beyond, 0)


def _balanced(mesh: Mesh, labels: Tensor) -> Tensor:
    n_parts = int(labels.max()) + 1
    owner, members = _lowest(mesh, labels), _touching_parts(mesh, labels, n_parts)
    shared = (members[:, 1] >= 0).nonzero().flatten() if members.shape[1] > 1 else owner[:0]
    inner = torch.ones_like(owner, dtype=torch.bool)
    inner[shared] = False
    load = torch.bincount(owner[inner], minlength=n_parts).tolist()
    interfaces, which, sizes = torch.unique(
        members[shared], dim=0, return_inverse=True, return_counts=True
    )
    chosen = torch.zeros_like(sizes)
    for i in torch.argsort(sizes, descending=True, stable=True).tolist():
        parts = [part for part in interfaces[i].tolist() if part >= 0]
        chosen[i] = min(parts, key=lambda part: (load[part], part))
        load[int(chosen[i])] += int(sizes[i])
    owner[shared] = chosen[which]
    return owner


def _touching_parts(mesh: Mesh, labels: Tensor, n_parts: int) -> Tensor:
    """Parts with a cell on each node, increasing and then -1, int64 ``[n_points, most]``."""
    keys = [
        torch.unique(nodes * n_parts + label.unsqueeze(1))
        for nodes, label in _nodes_and_labels(mesh, labels)
    ]
    key = torch.unique(torch.cat(keys))
    node, part = torch.div(key, n_parts, rounding_mode="floor"), key % n_parts
    counts = torch.bincount(node, minlength=mesh.n_points)
    first = counts.cumsum(0) - counts
    place = torch.arange(key.numel(), device=key.device) - first[node]
    members = torch.full((mesh.n_points, int(counts.max())), -1, device=key.device)
    members[node, place] = part
    return members


def _nodes_and_labels(mesh: Mesh, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Nodes ``[E, B]`` and part ``[E]`` of the cells of each type."""
    cells = list(mesh.top_cells().values())
    by_type = labels.split([c.shape[0] for c in cells])
    return [(c.to(labels.device), label) for c, label in zip(cells, by_type, strict=True)]


RULES: dict[str, Callable[[Mesh, Tensor], Tensor]] = {"lowest": _lowest, "balanced": _balanced}
