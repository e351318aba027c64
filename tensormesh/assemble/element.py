"""`ElementAssembler`: bilinear forms on cells, as sparse matrices."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from tensormesh.assemble.base import ElementData, check_batch_size
from tensormesh.assemble.contract import element_matrices
from tensormesh.assemble.energy import force_of_energy, tangent_of_energy
from tensormesh.assemble.form import FormData, bind
from tensormesh.assemble.has_energy import HasEnergy
from tensormesh.assemble.integrand import FormError, bilinear_coefficients
from tensormesh.assemble.scatter import scatter
from tensormesh.assemble.tangent import DATA, HasTangent
from tensormesh.sparse.matrix import SparseMatrix


class ElementAssembler(HasTangent, HasEnergy):
    """Sparse matrix of a bilinear form.

    Subclass it and define ``forward`` at one point. ``v``, ``gradv`` are the test function (rows
    of the matrix) and ``u``, ``gradu`` the trial function (columns); further arguments are ``x``
    (``[D]``), fields (``name``, ``gradname``), values per cell and constants. It returns a number,
    or an ``[H, H]`` block for ``H`` unknowns a node; unknown ``node * H + component``.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Diffusion(tm.ElementAssembler):
    ...     def forward(self, gradu, gradv, k):
    ...         return k * (gradu @ gradv)
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
    >>> Diffusion.from_mesh(mesh)(scalar_data={"k": 2.0}).shape
    (9, 9)
    """

    _family = "element"

    @property
    def edges(self) -> Tensor:
        """Node pairs that the matrix stores, int64 ``[2, nnz]``: rows, columns."""
        pattern = self._topology.pattern
        return torch.stack([pattern.row, pattern.col])

    def type(self, dst_type: torch.dtype | str) -> Self:
        """Convert coordinates and parameters; of a complex dtype, to its real part.

        The geometry is real; complex data make the matrix complex by themselves.

        Raises
        ------
        TypeError
            If `dst_type` is neither a floating-point nor a complex dtype.
        """
        if isinstance(dst_type, torch.dtype) and dst_type.is_complex:
            dst_type = dst_type.to_real()
        return super().type(dst_type)

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        batch_size: int = -1,
    ) -> SparseMatrix:
        """Assemble the matrix.

        Parameters
        ----------
        points
            New coordinates ``[n, D]``; they stay for later calls.
        func
            Replaces ``forward`` for this call.
        point_data
            Name -> ``[n, ...]``, interpolated with the cell basis.
        element_data
            Name -> ``[E, ...]``, or ``{type: [E, ...]}`` where the mesh has several cell types. A
            `PerQuadraturePoint` instead of a tensor varies inside a cell.
        scalar_data
            Name -> number or tensor.
        batch_size
            Quadrature points that are worked on at once, a positive integer. Blocks of cells are
            sized by it; -1 or None: so that they stay in the cache. The result is the same to
            rounding.

        Returns
        -------
        SparseMatrix
            ``[n * H, n * H]``, sorted by row then column; differentiable in points and data.

        Raises
        ------
        ValueError
            If an argument of the form is unknown, a length does not fit, a cell has no volume, or
            the form is not bilinear.
        TypeError
            If data would lose digits in the dtype of the mesh.
        """
        check_batch_size(batch_size)
        self._set_points(points)
        data = self._data(point_data, element_data, scalar_data, batch_size)
        return self._matrix(*self._block_values(func, data))

    def internal_force(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        *,
        unknown: str | None = None,
    ) -> Tensor:
        """Derivative of `energy` by the nodal values of a field: the residual without loads.

        By automatic differentiation at each point; `tangent` is the derivative of this.

        Parameters
        ----------
        points, func, point_data, element_data, scalar_data
            As of `energy`; real.
        unknown
            Name of the field, as of `tangent`.

        Returns
        -------
        Tensor
            ``[n * H]``, node-major; differentiable.

        Raises
        ------
        NotImplementedError, ValueError, TypeError
            As of `energy` and `tangent`.

        Examples
        --------
        >>> import tensormesh as tm
        >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
        >>> bar = tm.ElementAssembler.from_mesh(mesh)
        >>> u = mesh.points[:, 0]
        >>> density = lambda gradu: (gradu @ gradu) ** 2 / 4
        >>> force = bar.internal_force(func=density, point_data={"u": u})
        >>> round(float(force[u == 1].sum()), 12)
        1.0
        """
        call = dict(zip(DATA, (point_data, element_data, scalar_data), strict=True))
        return self._assembled_force({"points": points, "func": func, **call}, unknown)

    def _force_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        """Values ``[n, H]`` and ``H``."""
        values = force_of_energy(self, self._density(func, data), data, unknown)
        return values, values.shape[1]

    def _tangent_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        values = tangent_of_energy(self, self._density(func, data), data, unknown)
        return values, math.isqrt(values.shape[0])

    def _block_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[H * H, nnz]`` on the node pairs of the topology, and ``H``."""
        form = bind(self._integrand(func), data, ("u", "gradu", "v", "gradv"))
        if not (form.of_kind("trial") and form.of_kind("test")):
            raise FormError(
                f"{type(self).__name__}: a bilinear form needs one of u, gradu and one of v, gradv"
            )
        slots = self._topology.slots
        integrals = self._integrals(form, data, bilinear_coefficients, element_matrices)
        values = scatter(
            self._topology.n_slots,
            ((slots[kind][:, block], local) for kind, block, local in integrals),
        )
        return values, math.isqrt(values.shape[0])
