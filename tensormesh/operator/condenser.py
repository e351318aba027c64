"""Dirichlet conditions by elimination: the same code for serial and for sharded matrices."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn

from tensormesh.sparse.layout import _FEMSparsityMixin

# Layout of the matrix, mask, and how often the mask was written to.
_Key = tuple[Hashable, Tensor, int]


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
        self._elimination: _Elimination | None = None
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
        return elimination.restriction.matrix(entries), self._reduced(K, rhs, elimination)

    def _eliminate(self, K: Any) -> "_Elimination":
        if not isinstance(K, _FEMSparsityMixin):
            raise TypeError(f"K must be a SparseMatrix or a DSparseMatrix, got {type(K).__name__}")
        key = (K.layout_signature, self.dirichlet_mask, self.dirichlet_mask._version)
        known = self._elimination
        if known is None or not known.is_of(key):
            known = _Elimination(K, key)
            self._elimination = known
        return known

    def _reduced(self, K: Any, rhs: Tensor | None, elimination: "_Elimination") -> Tensor:
        prescribed = self._prescribed(K)
        if rhs is None:
            reduced = K.values.new_zeros(int(elimination.free.sum()))
        else:
            reduced = K._own_dofs(rhs, "rhs")[elimination.free]
        if prescribed is None:
            dtype = torch.promote_types(reduced.dtype, K.values.dtype)
            return reduced.to(dtype)
        columns = K._column_values(
            prescribed.to(torch.promote_types(prescribed.dtype, K.values.dtype))
        )
        terms = K.values[elimination.coupling] * columns[elimination.coupling_col]
        dtype = torch.promote_types(reduced.dtype, terms.dtype)
        terms = _beside(terms, reduced).expand(-1, *reduced.shape[1:])
        return reduced.to(dtype).index_add(0, elimination.coupling_row, -terms.to(dtype))

    def _prescribed(self, K: Any) -> Tensor | None:
        full = self._full_value()
        if full is None:
            return None
        value: Tensor = K._own_dofs(full, "dirichlet_value")
        mask = K._own_dofs(self.dirichlet_mask, "dirichlet_mask")
        return torch.where(mask, value, torch.zeros((), dtype=value.dtype, device=value.device))

    def recover(self, u_i: Tensor) -> Tensor:
        """Full solution from the reduced one, ``[N_i, ...]``, with the prescribed values put in.

        For a sharded system both are owned slices.

        Raises
        ------
        RuntimeError
            Before a first call with a matrix.
        ValueError
            If `u_i` has another length.
        """
        elimination = self._known()
        full = self.prolong(u_i)
        prescribed = elimination.own(self._full_value(), "dirichlet_value")
        if prescribed is None:
            return full
        dtype = torch.promote_types(full.dtype, prescribed.dtype)
        constrained = _beside(elimination.constrained, full)
        return torch.where(constrained, _beside(prescribed, full).to(dtype), full.to(dtype))

    def restrict(self, f: Tensor) -> Tensor:
        """Entries of `f` at the unknowns that are not constrained."""
        return self._known().own(f, "f")[self._known().free]  # type: ignore[index]

    def prolong(self, f_i: Tensor) -> Tensor:
        """Full vector with `f_i` at the free unknowns and zero elsewhere."""
        free = self._known().free
        n_free = int(free.sum())
        if f_i.shape[0] != n_free:
            raise ValueError(f"the reduced vector has {f_i.shape[0]} entries, expected {n_free}")
        full = f_i.new_zeros(free.numel(), *f_i.shape[1:])
        return full.index_put((free.nonzero().flatten(),), f_i)

    def _known(self) -> "_Elimination":
        if self._elimination is None:
            raise RuntimeError("call the condenser with a matrix first: condenser(K, rhs)")
        return self._elimination


class _Elimination:
    """Which entries of a layout stay, and which couple to constrained unknowns.

    Symbolic: made once per layout. Entries are named by their place in ``K.values``.
    """

    def __init__(self, K: Any, key: _Key) -> None:
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"K must be square, got shape {tuple(K.shape)}")
        self._key = key
        self._matrix = K.detach()
        self.constrained: Tensor = K._own_dofs(key[1], "dirichlet_mask")
        without_equation = K._rows_without_entries()
        self.free = ~(self.constrained | without_equation)
        free_columns = K._column_values(self.free)
        row_free, col_free = self.free[K.row_indices], free_columns[K.col_indices]
        self.inner = (row_free & col_free).nonzero().flatten()
        self.coupling = (row_free & ~col_free).nonzero().flatten()
        self.coupling_row = (self.free.cumsum(0) - 1)[K.row_indices[self.coupling]]
        self.coupling_col = K.col_indices[self.coupling]
        self.restriction = K._restrict(self.free, self.inner)

    def is_of(self, key: _Key) -> bool:
        """Whether this was made for that layout and that mask, as the mask is now."""
        layout, mask, version = self._key
        return key[1] is mask and key[2] == version and key[0] == layout

    def own(self, x: Tensor | None, name: str) -> Tensor | None:
        """`x`, in any form, as the rows of the matrix see it."""
        own: Tensor | None = None if x is None else self._matrix._own_dofs(x, name)
        return own


def _beside(x: Tensor, other: Tensor) -> Tensor:
    """`x` ``[n]`` with as many axes as `other` ``[n, ...]``, to broadcast along its columns."""
    return x.reshape(-1, *(1,) * (other.dim() - 1))
