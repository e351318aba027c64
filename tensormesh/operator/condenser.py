"""Dirichlet conditions by elimination: the same code for serial and for sharded matrices."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn

from tensormesh.operator.elimination import Elimination
from tensormesh.operator.shapes import beside, misfit_of_reduced
from tensormesh.sparse.layout import _FEMSparsityMixin
from tensormesh.sparse.matrix import SparseMatrix


class Condenser(nn.Module):
    """Remove constrained unknowns from a system, and put them back into its solution.

    With ``o`` the constrained unknowns and ``i`` the others, ``K u = f`` with ``u_o = g`` becomes
    ``K_ii u_i = f_i - K_io g``: symmetric if ``K`` is. Unknowns at points that no cell uses have
    no equation; they are left out too and recovered as ``g`` where constrained, else as zero.

    Given a sharded matrix, all of this stays sharded: rows and columns are removed in place, and
    prescribed values of columns that other ranks own come by one halo exchange. **Collective over
    the matrix's device mesh** then.

    Parameters
    ----------
    dirichlet_mask
        Which unknowns are constrained, bool ``[N]`` (``node * H + component``). For a sharded
        matrix: of the global unknowns, of the nodes of this rank's part, or of its owned slice.
    dirichlet_value
        Prescribed values: of full length (read where constrained) or one per constrained unknown
        in mask order; None means zero.

    Raises
    ------
    TypeError
        If the mask is not a bool tensor or the values are no tensor.
    ValueError
        If they are not 1-D, or the values have a length that fits neither.

    Examples
    --------
    >>> import tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.25)
    >>> K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    >>> condenser = tm.Condenser(mesh.boundary_mask, mesh.points[:, 0])
    >>> K_i, f_i = condenser(K)
    >>> bool(torch.allclose(condenser.recover(K_i.solve(f_i)), mesh.points[:, 0]))
    True
    """

    dirichlet_mask: Tensor
    dirichlet_value: Tensor | None

    def __init__(self, dirichlet_mask: Tensor, dirichlet_value: Tensor | None = None) -> None:
        super().__init__()
        if not isinstance(dirichlet_mask, Tensor) or dirichlet_mask.dtype != torch.bool:
            kind = getattr(dirichlet_mask, "dtype", type(dirichlet_mask).__name__)
            raise TypeError(f"dirichlet_mask must be a bool tensor, got {kind}")
        if dirichlet_mask.dim() != 1:
            raise ValueError(f"dirichlet_mask must be 1-D, got shape {tuple(dirichlet_mask.shape)}")
        self.register_buffer("dirichlet_mask", dirichlet_mask)
        self.register_buffer("dirichlet_value", None)
        self._elimination: Elimination | None = None
        self._coupling: Tensor | None = None
        self.update_dirichlet(dirichlet_value)

    def update_dirichlet(self, value: Tensor | None) -> None:
        """Prescribe new values, in the forms that the constructor takes."""
        if value is None:
            self.dirichlet_value = None
            return
        if not isinstance(value, Tensor):
            raise TypeError(f"dirichlet_value must be a tensor or None, got {type(value).__name__}")
        mask = self.dirichlet_mask
        n = int(mask.sum())
        if value.shape != mask.shape and value.shape != (n,):
            raise ValueError(
                f"dirichlet_value has shape {tuple(value.shape)}; expected one value per unknown, "
                f"[{mask.numel()}], or per constrained unknown, [{n}]"
            )
        self.dirichlet_value = value.to(mask.device)

    def _full_value(self) -> Tensor | None:
        """Prescribed values per unknown. Made anew each time: a graph can be run back only once."""
        value, mask = self.dirichlet_value, self.dirichlet_mask
        if value is None or value.shape == mask.shape:
            return value
        return value.new_zeros(mask.shape).index_put((mask.nonzero().flatten(),), value)

    def forward(self, K: Any, rhs: Tensor | None = None) -> tuple[Any, Tensor]:
        """Reduce a system.

        Parameters
        ----------
        K
            `SparseMatrix` or `DSparseMatrix`. The symbolic part is done once per layout.
        rhs
            Right-hand side ``[N]`` or ``[N, ...]``; for a sharded matrix the owned slice, or any
            form that the mask may have. None means zero.

        Returns
        -------
        K_ii, f_i
            The reduced matrix, of the class of `K`, and ``rhs_i - K_io g``; differentiable in
            `K`, `rhs` and the prescribed values.

        Raises
        ------
        TypeError
            If `K` is no matrix of this package, or `rhs` no tensor.
        ValueError
            If a length fits no form, or `K` is not square.
        """
        elimination = self._eliminate(K)
        entries = K.values[elimination.inner]
        self._coupling = K.values[elimination.coupling]
        return elimination.restriction.matrix(entries), self._reduced(rhs, elimination)

    def condense_rhs(self, rhs: Tensor | None) -> Tensor:
        """Reduce another right-hand side, with the matrix of the last call.

        Parameters
        ----------
        rhs
            As of the call.

        Returns
        -------
        Tensor
            ``rhs_i - K_io g``, ``g`` the values prescribed now; differentiable in `rhs`, in them
            and in that matrix. **Collective** for a sharded system.

        Raises
        ------
        RuntimeError
            Before a first call with a matrix.
        ValueError
            If the length fits no form.
        """
        return self._reduced(rhs, self._known())

    def _eliminate(self, K: Any) -> Elimination:
        if not isinstance(K, _FEMSparsityMixin):
            raise TypeError(f"K must be a SparseMatrix or a DSparseMatrix, got {type(K).__name__}")
        key = (K.layout_signature, self.dirichlet_mask, self.dirichlet_mask._version)
        known = self._elimination
        if known is None or not known.is_of(key):
            known = Elimination(K, key)
            self._elimination = known
        return known

    def _reduced(self, rhs: Tensor | None, elimination: Elimination) -> Tensor:
        coupling = self._known_coupling()
        rhs, prescribed = elimination.own(rhs=rhs, dirichlet_value=self._full_value())
        if rhs is None:
            reduced = coupling.new_zeros(elimination.n_free)
        else:
            reduced = rhs[elimination.free]
        if prescribed is None:
            return reduced.to(torch.promote_types(reduced.dtype, coupling.dtype))
        # What is prescribed counts where the mask is set; elsewhere it may be anything, even NaN.
        zero = torch.zeros((), dtype=prescribed.dtype, device=prescribed.device)
        prescribed = torch.where(elimination.constrained, prescribed, zero)
        columns = elimination.column_values(
            prescribed.to(torch.promote_types(prescribed.dtype, coupling.dtype))
        )
        terms = coupling * columns[elimination.coupling_col]
        dtype = torch.promote_types(reduced.dtype, terms.dtype)
        terms = beside(terms, reduced).expand(-1, *reduced.shape[1:])
        return reduced.to(dtype).index_add(0, elimination.coupling_row, -terms.to(dtype))

    def recover(self, u_i: Tensor) -> Tensor:
        """Full solution from the reduced one, ``[N_i, ...]``, with the prescribed values put in.

        For a sharded system both are owned slices.

        Raises
        ------
        RuntimeError
            Before a first call with a matrix.
        TypeError, ValueError
            If `u_i` is no tensor, or has another length.
        """
        elimination = self._known()
        full = self.prolong(u_i)
        (prescribed,) = elimination.own(dirichlet_value=self._full_value())
        if prescribed is None:
            return full
        dtype = torch.promote_types(full.dtype, prescribed.dtype)
        constrained = beside(elimination.constrained, full)
        return torch.where(constrained, beside(prescribed, full).to(dtype), full.to(dtype))

    def restrict(self, f: Tensor) -> Tensor:
        """Entries of `f` at the unknowns that stay; before any call, at those not constrained."""
        elimination = self._elimination
        if elimination is not None:
            own: Tensor = elimination.own(f=f)[0][elimination.free]
            return own
        if f.shape[:1] != self.dirichlet_mask.shape:
            raise ValueError(
                f"f has shape {tuple(f.shape)}; the mask has {self.dirichlet_mask.numel()} unknowns"
            )
        return f[~self.dirichlet_mask]

    def prolong(self, f_i: Tensor) -> Tensor:
        """Full vector with `f_i` at the unknowns that stay and zero elsewhere; see `restrict`."""
        known = self._elimination
        free = ~self.dirichlet_mask if known is None else known.free
        error = misfit_of_reduced(f_i, int(free.sum()))
        if known is not None:
            known.raise_if(error)
        elif error is not None:
            raise error
        full = f_i.new_zeros(free.numel(), *f_i.shape[1:])
        return full.index_put((free.nonzero().flatten(),), f_i)

    # -- what was found in the last call (of a sharded system: on this rank) ------------------

    @property
    def n_dof(self) -> int:
        """Number of unknowns."""
        return self._known().free.numel()

    @property
    def n_inner_dof(self) -> int:
        """Number of unknowns that stay."""
        return self._known().n_free

    @property
    def n_outer_dof(self) -> int:
        """Number of the others: constrained ones, and those without an equation."""
        return self.n_dof - self.n_inner_dof

    @property
    def is_inner_dof(self) -> Tensor:
        """Which unknowns stay, bool ``[n_dof]``."""
        return self._known().free

    @property
    def is_outer_dof(self) -> Tensor:
        """Which unknowns do not, bool ``[n_dof]``."""
        return ~self._known().free

    @property
    def inner_shape(self) -> tuple[int, int]:
        """Rows and columns of the reduced matrix; of a sharded one, local columns."""
        known = self._known()
        return known.n_free, int(known.free_columns.sum())

    @property
    def ou2in_shape(self) -> tuple[int, int]:
        """Rows and columns of the coupling block ``K_io``."""
        known = self._known()
        return known.n_free, int((~known.free_columns).sum())

    @property
    def is_inner_edge(self) -> Tensor:
        """Which stored entries of the matrix stay, bool ``[nnz]``."""
        return self._known().marked(self._known().inner)

    @property
    def is_ou2in_edge(self) -> Tensor:
        """Which stored entries couple a row that stays to a column that does not, ``[nnz]``."""
        return self._known().marked(self._known().coupling)

    @property
    def inner_row(self) -> Tensor:
        """Row in the reduced matrix of each entry that stays, int64."""
        return self._known().numbered(self._known().inner, "row")

    @property
    def inner_col(self) -> Tensor:
        """Column in the reduced matrix of each entry that stays, int64."""
        return self._known().numbered(self._known().inner, "col")

    @property
    def ou2in_row(self) -> Tensor:
        """Row in the coupling block of each of its entries, int64."""
        return self._known().coupling_row

    @property
    def ou2in_col(self) -> Tensor:
        """Column in the coupling block of each of its entries, int64."""
        return self._known().numbered(self._known().coupling, "outer")

    @property
    def K_ou2in(self) -> SparseMatrix:  # noqa: N802
        """Coupling block ``K_io`` of the last matrix, ``ou2in_shape``; keeps its gradients."""
        coupling = self._known_coupling()
        return SparseMatrix(coupling, self.ou2in_row, self.ou2in_col, self.ou2in_shape)

    @property
    def layout_signature(self) -> Hashable:
        """Layout of the matrices that the symbolic part was made for."""
        return self._known().layout

    def __getstate__(self) -> dict[str, Any]:
        """State without the history of the last matrix, which cannot be copied."""
        state = dict(self.__dict__)
        if self._coupling is not None:
            state["_coupling"] = self._coupling.detach()
        return state

    def _known_coupling(self) -> Tensor:
        """Values of ``K_io`` in the last call."""
        self._known()
        return self._coupling  # type: ignore[return-value]

    def _known(self) -> Elimination:
        if self._elimination is None:
            raise RuntimeError("call the condenser with a matrix first: condenser(K, rhs)")
        return self._elimination
