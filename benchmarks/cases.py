"""What is assembled: forms, elements and sizes. Read by every peer, so it needs no package."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

ORDERS = {"P1": 1, "P2": 2, "P3": 3, "Q1": 1, "Q2": 2}
YOUNG, POISSON = 1.0, 0.3
LAMBDA = YOUNG * POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
MU = YOUNG / (2 * (1 + POISSON))

FORMS = {
    "laplace": "∇u·∇v",
    "laplace-cell": "c ∇u·∇v, c constant in a cell",
    "laplace-nodal": "c ∇u·∇v, c nodal",
    "mass": "u v",
    "elasticity": "σ(u):ε(v)",
    "elasticity-cell": "c σ(u):ε(v), c constant in a cell",
    "load": "f v, f nodal (a vector)",
}


@dataclass(frozen=True)
class Case:
    """One form on one element, on a unit cube of ``n[0] x n[1] x n[2]`` boxes.

    A box is one hexahedron, or six tetrahedra around its diagonal (Kuhn).
    """

    element: str
    form: str
    n: tuple[int, int, int]

    def __post_init__(self) -> None:
        """Refuse what no peer knows."""
        if self.element not in ORDERS or self.form not in FORMS:
            raise ValueError(
                f"no case {self.element}-{self.form}: elements are {list(ORDERS)}, "
                f"forms {list(FORMS)}"
            )

    @property
    def name(self) -> str:
        """Element and form."""
        return f"{self.element}-{self.form}"

    @property
    def order(self) -> int:
        """Order of the basis."""
        return ORDERS[self.element]

    @property
    def is_simplex(self) -> bool:
        """Whether the cells are tetrahedra; else hexahedra."""
        return self.element.startswith("P")

    @property
    def is_vector(self) -> bool:
        """Whether the form is linear."""
        return self.form == "load"

    @property
    def n_unknowns(self) -> int:
        """Unknowns a node."""
        return 3 if self.form.startswith("elasticity") else 1

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.n[0] * self.n[1] * self.n[2] * (6 if self.is_simplex else 1)

    @property
    def degree(self) -> int:
        """Degree of the quadrature that peers are told to use.

        Tetrahedra: the lowest that is exact, as form compilers choose it. Hexahedra: twice the
        order, that is ``order + 1`` Gauss points a direction.
        """
        p = self.order
        if not self.is_simplex or self.form in ("mass", "load"):
            return 2 * p
        return 2 * (p - 1) + (p if self.form == "laplace-nodal" else 0)

    def doubled(self) -> "Case":
        """Twice the cells, along x."""
        return replace(self, n=(2 * self.n[0], *self.n[1:]))


def _size(element: str, form: str, small: bool) -> int:
    of_element = {"P1": (64, 6), "P2": (20, 3), "P3": (16, 2), "Q1": (48, 5), "Q2": (20, 3)}
    of_elasticity = {"P1": (32, 5), "P2": (12, 3), "P3": (8, 2)}
    sizes = of_elasticity if form.startswith("elasticity") else of_element
    return sizes[element][small]


def all_cases(small: bool = False) -> list[Case]:
    """Every case: full size (P1: 1.57 million cells), or small enough for a test."""
    cases = []
    for element in ORDERS:
        for form in FORMS:
            if form.startswith("elasticity") and not element.startswith("P"):
                continue
            n = _size(element, form, small)
            cases.append(Case(element, form, (n, n, n)))
    return cases


def chosen_cases(names: Sequence[str] | None, small: bool = False) -> list[Case]:
    """Cases with these names, in the order of the table; all without names.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    cases = all_cases(small)
    unknown = set(names or ()) - {case.name for case in cases}
    if unknown:
        raise ValueError(
            f"no cases {sorted(unknown)}; there are {', '.join(case.name for case in cases)}"
        )
    return [case for case in cases if names is None or case.name in names]
