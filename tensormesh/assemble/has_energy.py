"""`HasEnergy`: what assemblers on cells share whose class may define an energy density."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import Assembler, ElementData, check_batch_size
from tensormesh.assemble.energy import integral, sampled
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.per_point import PerQuadraturePoint
from tensormesh.assemble.tangent import DATA


class HasEnergy(Assembler):
    """Integral of ``element_energy``, and functions at quadrature points."""

    def energy(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        batch_size: int = -1,
    ) -> Tensor:
        """Integrate ``element_energy`` over the mesh.

        A subclass defines ``element_energy`` at one point, with fields (``name``, ``gradname``),
        ``x``, values per cell and constants as arguments: ``u`` is the field of that name. It
        returns a number.

        Parameters
        ----------
        points, point_data, element_data, scalar_data, batch_size
            As of the call.
        func
            Replaces ``element_energy`` for this call.

        Returns
        -------
        Tensor
            0-d; differentiable in points and data to any order.

        Raises
        ------
        NotImplementedError
            If the class has no ``element_energy`` and `func` is None.
        ValueError, TypeError
            As of the call.

        Examples
        --------
        >>> import tensormesh as tm
        >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
        >>> dirichlet = tm.ElementAssembler.from_mesh(mesh)
        >>> u = mesh.points[:, 0]
        >>> E = dirichlet.energy(func=lambda gradu: gradu @ gradu / 2, point_data={"u": u})
        >>> round(float(E), 12)
        0.5
        """
        check_batch_size(batch_size)
        return self._total_energy(
            {
                "points": points,
                "func": func,
                "point_data": point_data,
                "element_data": element_data,
                "scalar_data": scalar_data,
                "batch_size": batch_size,
            }
        )

    def at_quadrature_points(
        self,
        func: Callable[..., Tensor],
        points: Tensor | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
    ) -> dict[str, PerQuadraturePoint]:
        """Values of a function at the quadrature points, such as a stress or a new plastic strain.

        Parameters
        ----------
        func
            Arguments as of ``element_energy``; returns a tensor of any shape ``[...]``.
        points, point_data, element_data, scalar_data
            As of `energy`.

        Returns
        -------
        dict
            Cell type -> `PerQuadraturePoint` of ``[E, Q, ...]``, which `element_data` take. On
            ranks, of this rank's cells.

        Raises
        ------
        ValueError, TypeError
            As of `energy`.
        """
        call = dict(zip(DATA, (point_data, element_data, scalar_data), strict=True))
        return self._sampled({"points": points, "func": func, **call})

    # Each with the data of the call as a dict; on a `DistributedMesh` others stand here.

    def _total_energy(self, call: Mapping[str, Any]) -> Tensor:
        return self._energy(call["func"], self._moved(call))

    def _assembled_force(self, call: Mapping[str, Any], unknown: str | None) -> Tensor:
        return self._force_values(call["func"], self._moved(call), unknown)[0].reshape(-1)

    def _sampled(self, call: Mapping[str, Any]) -> dict[str, PerQuadraturePoint]:
        return self._samples(call["func"], self._moved(call))

    def _moved(self, call: Mapping[str, Any]) -> FormData:
        """Data of a call, after its points have been set."""
        self._set_points(call["points"])
        return self._data(*(call.get(k) for k in (*DATA, "batch_size")))

    def _energy(self, func: Callable[..., Tensor] | None, data: FormData) -> Tensor:
        return integral(self, self._density(func, data), data)

    def _force_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        """Derivative of the energy: values ``[n, H]`` and ``H``."""
        raise NotImplementedError

    def _samples(
        self, func: Callable[..., Tensor], data: FormData
    ) -> dict[str, PerQuadraturePoint]:
        return sampled(self, bind(func, data, ()), data)

    def _density(self, func: Callable[..., Tensor] | None, data: FormData) -> Form:
        density = func or getattr(self, "element_energy", None)
        if density is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no energy: define element_energy(self, ...) with "
                "arguments by name, or pass func="
            )
        return bind(density, data, ())
