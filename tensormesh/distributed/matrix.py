"""`DSparseMatrix`: a row-sharded sparse matrix with FEM identity."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh
from torch.distributed.tensor import DTensor
from torch_sla import SparseTensor
from torch_sla.distributed import DSparseTensor, Partition
from torch_sla.io import load_dsparse

from tensormesh.distributed.collectives import (
    agree,
    all_gather_rows,
    all_max,
    raise_together,
    replicated,
)
from tensormesh.distributed.device_mesh import DeviceMesh, as_device_mesh
from tensormesh.distributed.eigen import eigsh
from tensormesh.distributed.engine import Engine
from tensormesh.distributed.forms import refuse_different
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.owned_vector import OwnedVector, like
from tensormesh.distributed.preconditioner import Preconditioner
from tensormesh.distributed.product import ShardedProduct
from tensormesh.distributed.reduced import ShardedRestriction
from tensormesh.distributed.reductions import ShardedReductions
from tensormesh.distributed.solve import solve
from tensormesh.distributed.solve_options import SolveOptions
from tensormesh.distributed.ties import ShardedTies
from tensormesh.distributed.transpose import TransposedMatrix
from tensormesh.distributed.wrap import layout_of
from tensormesh.sparse.krylov.solution import Callback
from tensormesh.sparse.layout import _FEMSparsityMixin
from tensormesh.sparse.matrix import SparseMatrix
from tensormesh.sparse.pattern_tensor import PatternTensor
from tensormesh.sparse.product import multiply
from tensormesh.sparse.solve_info import SolveInfo


class DSparseMatrix(_FEMSparsityMixin, ShardedReductions, Engine, DSparseTensor):
    """Row-sharded sparse matrix: this rank stores the rows of the unknowns that it owns.

    Local numbering is owned unknowns first, then the ghosts that the rows name. Vectors are plain
    tensors, the owned slice ``[n_owned]`` or ``[n_owned, k]``. Assembly makes such matrices; the
    constructor wraps one of torch-sla.

    Parameters
    ----------
    dsparse_tensor
        Row-sharded tensor of torch-sla. **Wrapping one is collective over its mesh.**
    partition_uuid
        63-bit identity of the partition build; drawn on rank 0 and broadcast when not given.

    Raises
    ------
    TypeError
        If `dsparse_tensor` is no row-sharded `DSparseTensor`.
    """

    layout: MatrixLayout

    def __init__(self, dsparse_tensor: DSparseTensor, partition_uuid: int | None = None) -> None:
        layout, entries = layout_of(dsparse_tensor, partition_uuid)
        self._bind(layout, dsparse_tensor.values[entries])

    @classmethod
    def from_layout(cls, layout: MatrixLayout, values: Tensor) -> Self:
        """Matrix with `values` ``[nnz]`` on a shared layout."""
        matrix = cls.__new__(cls)
        matrix._bind(layout, values)
        return matrix

    @classmethod
    def from_sparse_local(cls, *args: Any, **kwargs: Any) -> Self:
        """Matrix from the arguments of torch-sla's function of this name. **Collective.**"""
        return cls(DSparseTensor.from_sparse_local(*args, **kwargs))

    @classmethod
    def load(
        cls,
        directory: str | Path,
        device_mesh: DeviceMesh | TorchDeviceMesh | None = None,
        partition_uuid: int | None = None,
    ) -> Self:
        """Matrix that as many ranks saved. **Collective over `device_mesh`.**"""
        ranks = as_device_mesh(device_mesh)
        torch_mesh = ranks.to_torch() if dist.is_initialized() else None
        with agree(ranks):
            loaded = load_dsparse(
                directory, torch_mesh, ranks.get_local_rank(), ranks.size(), ranks.device
            )
        return cls(loaded, partition_uuid)

    def _bind(self, layout: MatrixLayout, values: Tensor) -> None:
        self.layout = layout
        local = PatternTensor(layout.pattern, values, (layout.n_local, layout.n_local))
        base = DSparseTensor.from_sparse_local(
            local, layout.torch_mesh, layout.partition, global_shape=layout.global_shape
        )
        self.__dict__.update(base.__dict__)

    def _with_values(self, values: Tensor) -> Self:
        return type(self).from_layout(self.layout, values)

    def _operand(self, other: Any) -> Any:
        """As of any matrix; a number that all ranks share gets its whole gradient on each."""
        found = super()._operand(other)
        if isinstance(found, Tensor) and found.dim() == 0 and found.requires_grad:
            return replicated(found, self.layout.device_mesh)
        return found

    def _wrap_local(self, local: SparseTensor) -> Self:
        """Result of one of torch-sla's entrywise functions."""
        return self._with_values(local.values)

    # -- identity --------------------------------------------------------------------------

    @property
    def values(self) -> Tensor:  # type: ignore[override]
        """Entries of this rank's rows, ``[nnz]``, sorted by row then local column."""
        values: Tensor = self._local_tensor.values
        return values

    @property
    def partition_uuid(self) -> int:
        """Identity of the partition build, the same on every rank."""
        return self.layout.uuid

    @property
    def partition(self) -> Partition:
        """torch-sla's description of this rank's rows and ghosts, in the input's numbering."""
        return self.layout.partition

    @property
    def layout_signature(self) -> Hashable:
        """Local sparsity by content and the partition build."""
        return self.layout.signature

    def __repr__(self) -> str:
        n_rows, n_cols = self.shape
        return (
            f"DSparseMatrix({n_rows} x {n_cols}, rank {self.layout.index_map.rank} of "
            f"{self.layout.device_mesh.size()}: {self.layout.n_owned} rows, "
            f"{self.values.numel()} entries, {self.layout.n_local - self.layout.n_owned} ghosts, "
            f"{self.values.dtype}, {self.values.device})"
        )

    # -- conversion ------------------------------------------------------------------------

    def to(self, device: Any = None, dtype: Any = None) -> Self:
        """Matrix in another dtype; this rank's part stays on the device of its mesh.

        Raises
        ------
        ValueError
            If `device` is another one: process groups are bound to the device of the mesh.
        """
        if isinstance(device, torch.dtype):
            device, dtype = dtype, device
        if device is not None and torch.device(device).type != self.values.device.type:
            raise ValueError(
                f"device = {device!r}: this matrix lives on the device mesh of its partition, "
                f"{self.values.device}; build the DistributedMesh on the other device, or gather "
                "with to_single().to(...)"
            )
        return self if dtype is None else self._with_values(self.values.to(dtype))

    def scatter(self, global_vec: Tensor) -> Tensor:
        """Owned slice of a vector that every rank has, as a `DTensor`. **Collective.**

        Parameters
        ----------
        global_vec
            ``[n]`` or ``[n, k]`` in the input's numbering.

        Returns
        -------
        OwnedVector or Tensor
            What torch-sla's functions take; in a process without a job, the plain slice.

        Raises
        ------
        ValueError
            On every rank, if the length is not that of the matrix.
        """
        layout, n = self.layout, self.shape[0]
        error = ValueError(f"global_vec has shape {tuple(global_vec.shape)}; expected [{n}]")
        fits = global_vec.dim() > 0 and global_vec.shape[0] == n
        raise_together(None if fits else error, layout.device_mesh)
        owned = layout.vectors.scatter(global_vec)
        return owned if layout.torch_mesh is None else OwnedVector.of(owned, layout)

    def detach(self) -> Self:
        """Matrix with the same values and no history."""
        return self._with_values(self.values.detach())

    def clone(self) -> Self:
        """Matrix with copied values on the same layout."""
        return self._with_values(self.values.clone())

    def to_single(self) -> SparseMatrix:
        """Whole matrix on every rank, in the input's numbering. **Collective**; differentiable."""
        pattern, layout = self.layout.pattern, self.layout
        device_mesh = layout.device_mesh
        dofs = layout.partition.local_to_global
        pairs = torch.stack([dofs[pattern.row], dofs[pattern.col]], dim=1)
        pairs = all_gather_rows(pairs, device_mesh)
        values = all_gather_rows(self.values, device_mesh)
        return SparseMatrix(values, pairs[:, 0], pairs[:, 1], layout.global_shape).coalesce()

    # -- algebra ---------------------------------------------------------------------------

    def __matmul__(self, x: Any) -> Any:
        """Product. **Collective over the device mesh.**

        Parameters
        ----------
        x
            Owned slice ``[n_owned]`` or ``[n_owned, k]``, local vector (owned, then ghosts)
            ``[n_local]`` whose ghosts are ignored, or `DTensor`.

        Returns
        -------
        Tensor or DTensor
            The product in the same form.

        Raises
        ------
        TypeError, ValueError
            If `x` is no tensor, or its length fits no form. Ranks do not agree on that, as ghosts
            are all that a product sends: if only one rank is wrong, the others wait for it.
        """
        if isinstance(x, DTensor):
            return like(x, self @ x.to_local(), self.layout)
        layout = self.layout
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a tensor, got {type(x).__name__}")
        if x.dim() not in (1, 2) or x.shape[0] not in (layout.n_owned, layout.n_local):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected the owned slice [{layout.n_owned}] or "
                f"owned and ghosts [{layout.n_local}], or columns of these"
            )
        y = self._multiply(x[: layout.n_owned])
        return layout.with_ghosts(y) if self._is_local(x) else y

    def _is_local(self, x: Tensor) -> bool:
        """Whether `x` has a place for ghosts; a rank without ghosts asks those that have some."""
        local = x.shape[0] > self.layout.n_owned
        if not self.layout.halo.only_some_have_ghosts:
            return local
        return bool(all_max(int(local), self.layout.device_mesh))

    def _multiply(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and (self.values.requires_grad or x.requires_grad):
            return multiply(self.layout.pattern, self.values, self.layout.with_ghosts(x))
        dtype = torch.promote_types(self.values.dtype, x.dtype)
        return ShardedProduct(self.layout, self.values.to(dtype)) @ x.to(dtype)

    @property
    def T(self) -> TransposedMatrix:
        """Transpose, for products ``A.T @ x``; the entries stay where they are."""
        return TransposedMatrix(self)

    @property
    def H(self) -> TransposedMatrix:  # noqa: N802
        """Conjugate transpose."""
        return self.conj().T

    def diagonal(self) -> Tensor:
        """Owned slice of the diagonal, ``[n_owned]``; differentiable."""
        entries = self.layout.diagonal_entries
        stored = (entries >= 0).nonzero().flatten()
        # A rank without entries keeps its place in the graph.
        found = self.values[entries[stored]]
        return self.values.new_zeros(len(entries)).index_put((stored,), found)

    def solve(
        self,
        b: Tensor,
        method: str = "auto",
        preconditioner: str | Preconditioner = "auto",
        rtol: float | None = None,
        atol: float = 0.0,
        maxiter: int | None = None,
        x0: Tensor | None = None,
        on_failure: str = "raise",
        return_info: bool = False,
        *,
        restart: int | None = None,
        callback: Callback | None = None,
        null_space: Tensor | str | None = None,
    ) -> Tensor | tuple[Tensor, SolveInfo]:
        """Solve ``A x = b``. **Collective over the device mesh.**

        Parameters
        ----------
        b
            Owned slice of the right-hand side, ``[n_owned]``, or of several, ``[n_owned, k]``; or a
            `DTensor` of such slices.
        method
            ``"cg"`` for Hermitian positive definite matrices, ``"minres"`` for Hermitian ones,
            ``"gmres"`` or ``"bicgstab"`` for any; one that the matrix does not fit is refused.
            ``"direct"`` gathers a matrix of at most 50,000 unknowns on the first rank.
            ``"auto"`` looks at the matrix: cg if it is Hermitian with a positive diagonal, and
            minres if it turns out to be indefinite; else gmres.
        preconditioner
            ``"multilevel"``: smoothed aggregation, for symmetric positive definite matrices, whose
            iterations hardly grow with the mesh; ``"jacobi"``: the diagonal; ``"schwarz"``: the
            blocks of the ranks; ``"none"``. ``"auto"``: multilevel for a real symmetric matrix of
            more than 5,000 unknowns with a positive diagonal, else the diagonal, if it has no zero;
            the `SolveInfo` names it. Or an object, such as `Multilevel` with options of its own: an
            approximate inverse that multiplies owned slices, ``M @ r``, with a ``name``, and a
            transpose ``T`` if it should serve gradients of systems that are not Hermitian. It may
            be used for many systems.
        rtol, atol
            Stop when ``|b - A x| <= max(rtol |b|, atol)`` in each column, the residual computed
            anew. By default `rtol` is 1e-10, and 1e-8 if the result is in single precision; then
            too the iteration is in double precision, and its result is rounded.
        maxiter
            Bound of the iterations; by default 10 a global unknown, between 1000 and 50,000.
        x0
            Owned slice of the first guess, in the shape of `b`; zero by default.
        on_failure
            ``"raise"``, ``"warn"`` or ``"return"`` when the tolerance is not reached.
        return_info
            Whether to return the `SolveInfo` too; of several columns, that of the worst.
        restart
            Iterations after which gmres begins anew, 50 by default.
        callback
            Called on every rank after each iteration, with its number and the relative residual of
            the worst column, as the recurrence has it.
        null_space
            What a Hermitian matrix maps to zero: owned slices of independent vectors,
            ``[n_owned, m]``, or ``"constants"``, one for each component. The part of `b` in it,
            for which no solution exists, is removed; so is that of the solution, which is the
            shortest one.

        Returns
        -------
        x or (x, info)
            Owned slice of the solution, in the form of `b`; differentiable in `b` and in the values
            to any order, by one more solve for each backward.

        Raises
        ------
        NotConvergedError
            If the tolerance is not reached and `on_failure` is ``"raise"``.
        SingularMatrixError
            If the matrix does not hold rigid motions or constants that `b` loads, or a row is zero.
        ValueError
            If an argument is wrong, or the method does not fit the matrix.
        """
        options = SolveOptions(
            method,
            preconditioner,
            rtol,
            atol,
            maxiter,
            x0,
            on_failure,
            restart,
            callback,
            null_space,
        )
        x, info = solve(self, b, options)
        return (x, info) if return_info else x

    def eigsh(
        self,
        k: int = 6,
        which: str = "LM",
        sigma: float | None = None,
        return_eigenvectors: bool = True,
        *,
        M: "DSparseMatrix | None" = None,
        preconditioner: str | Preconditioner = "auto",
        rtol: float = 1e-8,
        maxiter: int = 500,
    ) -> tuple[Tensor, Tensor | None]:
        """Some eigenpairs ``A x = lambda M x`` of a symmetric matrix. **Collective.**

        Parameters
        ----------
        k
            How many.
        which
            ``"SA"``, the smallest, or ``"LA"``, the largest by value; others are refused.
        sigma
            Refused: nothing is factored here.
        return_eigenvectors
            Whether to return them; None in their place otherwise.
        M
            Symmetric positive definite matrix of the same unknowns; None for the identity.
        preconditioner
            Name as of `solve`, or an approximate inverse of the matrix, symmetric positive
            definite, as `Multilevel`; of a free body, whose matrix is singular, that of the matrix
            plus a multiple of `M`, as a name stands for there.
        rtol
            Stop when ``|A x - lambda M x|`` of each is below this share of the largest
            ``|lambda M x|``, computed anew; where all these are zero, below some roundings of
            ``|A| |x|``. Matrices in single precision are iterated on in double precision.
        maxiter
            Bound of the iterations of the block.

        Returns
        -------
        values, vectors
            ``[k]`` in ascending order, the same on every rank, with a first derivative in the
            entries of both matrices (right for single eigenvalues); and owned slices
            ``[n_owned, k]``, orthonormal in `M`, without one.

        Raises
        ------
        NotConvergedError
            If the tolerance is not reached.
        NotImplementedError
            If eigenvalues are asked for that are not at the ends of the spectrum.
        ValueError, TypeError
            If a matrix is not symmetric, `M` has other unknowns, or an argument is out of range.
        """
        if sigma is not None:
            raise NotImplementedError(
                f"eigsh of a row-sharded matrix with sigma = {sigma}: take which='SA' or 'LA', or "
                "gather the matrix with to_single()"
            )
        values, vectors = eigsh(self, k, which, M, preconditioner, rtol, maxiter)
        return values, vectors if return_eigenvectors else None

    # -- what constraints and newton ask of a matrix -------------------------------------------

    def _own_dofs(self, **given: Tensor | None) -> list[Tensor | None]:
        return self.layout.vectors.owned_of(given, self.layout.h)

    def _raise_if(self, error: Exception | None) -> None:
        raise_together(error, self.layout.device_mesh)

    def _refuse_different(self, given: Sequence[str]) -> None:
        refuse_different(given, self.layout.device_mesh)

    def _vector_norm(self, x: Tensor) -> Tensor:
        return self.layout.vectors.norm(x)

    def _column_values(self, x: Tensor) -> Tensor:
        return self.layout.with_ghosts(x)

    def _rows_without_entries(self) -> Tensor:
        return self.layout.pattern.empty_rows()

    def _restrict(self, keep: Tensor, entries: Tensor) -> "ShardedRestriction":
        return ShardedRestriction(self.layout, keep, entries, type(self).from_layout)

    def _ties(self, slave: Any, master: Any, coefficient: Any) -> ShardedTies:
        return ShardedTies(self.layout, slave, master, coefficient)
