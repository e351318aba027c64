"""One rank's memory is of the order of its part: nothing of global length is kept."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.product import ShardedProduct
from tests.distributed.cases import METHODS, Transport, data_of
from tests.rank_pool import RankPool


def tensors_in(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Tensors that an object keeps alive by attributes and items; process groups are left out."""
    if id(thing) in seen or isinstance(thing, type | DeviceMesh | str | bytes):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield path, thing
        return
    children: dict[str, Any] = {}
    if isinstance(thing, dict):
        children = {f"[{key!r}]": value for key, value in thing.items()}
    elif isinstance(thing, list | tuple | set | frozenset):
        children = {f"[{i}]": value for i, value in enumerate(thing)}
    elif hasattr(thing, "__dict__") and type(thing).__module__.startswith(("tensormesh", "torch")):
        children = {f".{name}": value for name, value in vars(thing).items()}
    for name, child in children.items():
        yield from tensors_in(child, path + name, seen)


def largest(thing: Any, name: str) -> dict[str, int]:
    """Rows of each kept tensor, and elements of the storage behind it where that is more."""
    return {
        path: max(x.shape[0] if x.dim() else 1, x.untyped_storage().nbytes() // 64)
        for path, x in tensors_in(thing, name, set())
    }


def kept(device_mesh: DeviceMesh, method: str, n: int) -> dict[str, Any]:
    mesh = tm.Mesh.gen_rectangle(n=(n, n))
    weights = torch.ones(mesh.n_elements)
    options = {} if method == "spectral" else {"weights": weights}
    dmesh = tm.DistributedMesh(mesh, method=method, device_mesh=device_mesh, **options)
    asm = tm.distributed.distributed(Transport).from_mesh(dmesh)
    K = asm(**data_of(mesh))
    f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
    condenser = tm.Condenser(dmesh.boundary_mask)
    K_i, _ = condenser(K, f)
    K_i.layout.partition, K.layout.partition, dmesh.quality()
    found = {}
    for name, thing in {"dmesh": dmesh, "asm": asm, "K": K, "cond": condenser, "K_i": K_i}.items():
        found |= largest(thing, name)
    part = dmesh.parts[0].mesh
    return {
        "rows": found,
        "entries": K.values.numel() + K.layout.halo.n_ghosts,
        "cells": part.n_elements,
        "points": mesh.n_points,
        "global": {path for path, n in found.items() if n in (mesh.n_points, mesh.n_elements)},
    }


@pytest.mark.parametrize("method", METHODS)
def test_no_tensor_of_global_length_is_kept(ranks: RankPool, method: str) -> None:
    """distributed-api DistributedMesh | memory: one rank keeps O(its part)."""
    for got, other in zip(ranks(4, kept, method, 24), ranks(4, kept, method, 21), strict=True):
        assert len(got["rows"]) > 60  # the walk has found the maps, the meshes, the matrices
        assert got["global"] & other["global"] == set()  # by accident a size may occur once
        # Patterns have an entry a node pair of a cell; nothing is longer than these.
        bound = max(got["entries"], 9 * got["cells"])
        assert {path: n for path, n in got["rows"].items() if n > bound} == {}
        nodal = ("index_map", "to_local", "owned_ids", "ghosts", "orig_nid", "halo")
        too_long = {
            path: n
            for path, n in got["rows"].items()
            if any(word in path for word in nodal) and n > got["points"] // 2
        }
        assert too_long == {}


def kept_by_products(device_mesh: DeviceMesh) -> tuple[int, int]:
    """Bytes of a matrix, and of what its products keep beside it."""
    dmesh = tm.DistributedMesh(tm.Mesh.gen_cube(n=(8, 8, 24)), device_mesh=device_mesh)
    K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
    layout, product = K.layout, ShardedProduct(K.layout, K.values)
    product @ K.values.new_ones(layout.n_owned)
    parts = [x for _, x in tensors_in(vars(product), "product", set())]
    for x in [x for x in parts if x.layout == torch.sparse_csr]:
        parts += [x.values(), x.col_indices(), x.crow_indices()]
    parts += [x for _, x in tensors_in(layout.ghost_block, "block", set())]

    def memory(tensors: list[Tensor]) -> dict[int, int]:
        storages = [x.untyped_storage() for x in tensors if x.layout == torch.strided]
        return {x.data_ptr(): x.nbytes() for x in storages}

    own = memory([K.values, *layout.pattern.csr_indices])
    beside = {at: n for at, n in memory(parts).items() if at not in own}
    layout_too = memory([x for _, x in tensors_in(layout.__dict__, "layout", set())])
    return sum(own.values()), sum(n for at, n in beside.items() if at not in layout_too)


@pytest.mark.parametrize("n", [1, 2])
def test_products_use_the_entries_of_the_matrix_as_they_are(ranks: RankPool, n: int) -> None:
    for own, beside in ranks(n, kept_by_products):
        assert own > 1e5
        assert beside < own / 4  # a copy of the owned columns would be most of it


def grows(device_mesh: DeviceMesh) -> list[int]:
    """Live tensors after each of several rounds of assembly, condensation and solution."""
    mesh = tm.Mesh.gen_rectangle(n=(8, 8))
    counts = []
    for _ in range(7):
        dmesh = tm.DistributedMesh(mesh, device_mesh=device_mesh)
        K = tm.distributed_element_assemble(tm.LaplaceElementAssembler, dmesh)
        f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
        condenser = tm.Condenser(mesh.boundary_mask)
        K_i, f_i = condenser(K, f)
        condenser.recover(K_i.solve(f_i))
        del dmesh, K, f, condenser, K_i, f_i
        gc.collect()
        counts.append(sum(type(thing) is Tensor for thing in gc.get_objects()))
    return counts


def test_nothing_is_left_behind(ranks: RankPool) -> None:
    # In one round or another the collector is late; what leaks is there in every later round.
    for _, *early_and_late in ranks(2, grows):
        assert min(early_and_late[3:]) <= min(early_and_late[:3])
