"""`NodeAssembler`: linear forms on cells, as vectors."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from tensormesh.assemble.base import ElementData, check_batch_size, check_project
from tensormesh.assemble.contract import element_vectors
from tensormesh.assemble.energy import tangent_of_residual
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.integrand import FormError, linear_coefficients
from tensormesh.assemble.scatter import scatter
from tensormesh.assemble.tangent import HasTangent
from tensormesh.assemble.topology import Topology


class NodeAssembler(HasTangent):
    """Vector of a linear form.

    Subclass it and define ``forward`` at one point, with the test function ``v``, ``gradv``, the
    coordinate ``x``, fields, values per cell and constants. It returns a number, or ``[H]`` for
    ``H`` unknowns a node. Of fields it may depend in any way: with the unknown as a field, this is
    the residual of a nonlinear problem, and `tangent` its derivative.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Load(tm.NodeAssembler):
    ...     def forward(self, v, x):
    ...         return x[0] * v
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
    >>> round(float(Load.from_mesh(mesh)().sum()), 12)
    0.5
    """

    _family = "node"

    @classmethod
    def from_elements(
        cls,
        points: Tensor,
        elements: Mapping[str, Tensor],
        quadrature_order: int = 2,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        project: str = "reduce",
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        """Assembler on bare arrays: `points` ``[n, D]`` and ``{cell type: [E, B]}``."""
        check_project(project)
        cells = {name: cell.to(device, torch.int64) for name, cell in elements.items()}
        return cls._create(
            Topology(points.to(device, dtype), cells), quadrature_order, args, kwargs
        )

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        batch_size: int = 1,
        *,
        element_data: ElementData | None = None,
    ) -> Tensor:
        """Assemble the vector.

        Parameters
        ----------
        points, func, point_data, scalar_data, batch_size, element_data
            As of `ElementAssembler.__call__`.

        Returns
        -------
        Tensor
            ``[n * H]``, node-major; differentiable in points and data.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        check_batch_size(batch_size)
        self._set_points(points)
        values, _ = self._node_values(func, self._data(point_data, element_data, scalar_data))
        return values.reshape(-1)

    # A form is always vectorised here; these let scripts run that switched it elsewhere.

    @property
    def is_compiled(self) -> bool:
        """False: there are no compile modes."""
        return False

    def compile(self, mode: str = "disable", *args: Any, **kwargs: Any) -> Self:  # type: ignore[override]
        """Change nothing; accepted for compatibility."""
        return self

    def flat_mode(self) -> Self:
        """Change nothing; accepted for compatibility."""
        return self

    def reset_compile(self) -> Self:
        """Change nothing; accepted for compatibility."""
        return self

    def _node_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[n, H]`` and ``H``."""
        form = self._form(func, data)
        columns = self._topology.columns
        integrals = self._integrals(form, data, linear_coefficients, element_vectors)
        values = scatter(
            self.n_points, ((columns[kind][:, block], local) for kind, block, local in integrals)
        )
        return values.t(), values.shape[0]

    def _tangent_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        form = self._form(func, data)
        for kind in self.elements:
            table, geometry = self._table(kind), self._cell_geometry(kind)
            self._probe(form, data, kind, geometry, table, linear_coefficients)
        values = tangent_of_residual(self, form, data, unknown)
        return values, math.isqrt(values.shape[0])

    def _form(self, func: Callable[..., Tensor] | None, data: FormData) -> Form:
        form = bind(self._integrand(func), data, ("v", "gradv"))
        if not form.of_kind("test"):
            raise FormError(f"{type(self).__name__}: a linear form needs one of v, gradv")
        return form
