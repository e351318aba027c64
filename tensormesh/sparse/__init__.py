"""Sparse matrices on one device: torch-sla's `SparseTensor` with FEM identity and algebra."""

from torch_sla import SparseTensor

from tensormesh.sparse.matrix import SparseMatrix
from tensormesh.sparse.pattern import SparsityPattern

__all__ = ["SparseMatrix", "SparseTensor", "SparsityPattern"]
