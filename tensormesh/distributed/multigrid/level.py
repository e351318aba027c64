"""`Level`: one matrix of a hierarchy, as its set-up on the host sees it."""

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.product import ShardedProduct

# scipy's compressed rows, which carry no type information.
Csr = Any
Ints = NDArray[Any]
Floats = NDArray[Any]


@dataclass(frozen=True)
class Level:
    """Rows on this rank of a symmetric matrix with unit diagonal, and what its kernel looks like.

    Parameters
    ----------
    layout
        Numbering and halo of the unknowns.
    matrix
        Owned rows by local columns (owned, then ghosts).
    nodes
        Node of each owned unknown, ``[n_owned]``, numbered from 0 on this rank: unknowns of one
        node stay together.
    near_null_space
        Vectors that the matrix maps to almost zero, ``[n_owned, k]``.
    stored
        The matrix with entries that are nothing but rounding: what is stored tells neighbours.
    """

    layout: MatrixLayout
    matrix: Csr
    nodes: Ints
    near_null_space: Floats
    stored: Csr

    @property
    def n_owned(self) -> int:
        """Number of unknowns on this rank."""
        return self.layout.n_owned

    @property
    def n_nodes(self) -> int:
        """Number of nodes on this rank."""
        return int(self.nodes.max()) + 1 if self.nodes.size else 0

    @property
    def n_global(self) -> int:
        """Number of unknowns of all ranks."""
        return self.layout.global_shape[0]


def csr_of(layout: MatrixLayout, values: Tensor) -> Csr:
    """Entries ``[nnz]`` on the pattern of a layout, as compressed rows on the host."""
    crow, col = (index.cpu().numpy() for index in layout.pattern.csr_indices)
    return sp.csr_matrix((values.cpu().numpy(), col, crow), shape=layout.pattern.shape)


def product_of(level: Level, dtype: torch.dtype) -> ShardedProduct:
    """Product with the matrix of a level, on the device of its layout."""
    values = torch.from_numpy(level.matrix.data).to(level.layout.pattern.device, dtype)
    return ShardedProduct(level.layout, values)


def csr_tensor_of(matrix: Csr, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Compressed rows of scipy as those of torch, on a device."""
    crow, col = (torch.from_numpy(index).to(device) for index in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data).to(device, dtype)
    return torch.sparse_csr_tensor(
        crow, col, values, matrix.shape, device=device, check_invariants=False
    )
