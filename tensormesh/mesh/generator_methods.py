"""The generators as static methods of `Mesh`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh

# Each imports where it is called: the generators make meshes, so their modules need `Mesh` first.


class GeneratorMethods:
    """What `Mesh` inherits: ``Mesh.gen_cube(...)`` is `tensormesh.dataset.gen_cube`."""

    @staticmethod
    def gen_rectangle(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a rectangle; see `tensormesh.dataset.gen_rectangle`."""
        from tensormesh.dataset import gen_rectangle

        return gen_rectangle(*args, **kwargs)

    @staticmethod
    def gen_hollow_rectangle(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a rectangle with a hole; see `tensormesh.dataset.gen_hollow_rectangle`."""
        from tensormesh.dataset import gen_hollow_rectangle

        return gen_hollow_rectangle(*args, **kwargs)

    @staticmethod
    def gen_circle(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a disk, by gmsh; see `tensormesh.dataset.gen_circle`."""
        from tensormesh.dataset import gen_circle

        return gen_circle(*args, **kwargs)

    @staticmethod
    def gen_hollow_circle(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a ring, by gmsh; see `tensormesh.dataset.gen_hollow_circle`."""
        from tensormesh.dataset import gen_hollow_circle

        return gen_hollow_circle(*args, **kwargs)

    @staticmethod
    def gen_L(*args: Any, **kwargs: Any) -> "Mesh":  # noqa: N802
        """Mesh an L; see `tensormesh.dataset.gen_L`."""
        from tensormesh.dataset import gen_L

        return gen_L(*args, **kwargs)

    @staticmethod
    def gen_cube(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a box; see `tensormesh.dataset.gen_cube`."""
        from tensormesh.dataset import gen_cube

        return gen_cube(*args, **kwargs)

    @staticmethod
    def gen_hollow_cube(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a box with a hole; see `tensormesh.dataset.gen_hollow_cube`."""
        from tensormesh.dataset import gen_hollow_cube

        return gen_hollow_cube(*args, **kwargs)

    @staticmethod
    def gen_sphere(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a ball, by gmsh; see `tensormesh.dataset.gen_sphere`."""
        from tensormesh.dataset import gen_sphere

        return gen_sphere(*args, **kwargs)

    @staticmethod
    def gen_hollow_sphere(*args: Any, **kwargs: Any) -> "Mesh":
        """Mesh a ball with a hole, by gmsh; see `tensormesh.dataset.gen_hollow_sphere`."""
        from tensormesh.dataset import gen_hollow_sphere

        return gen_hollow_sphere(*args, **kwargs)
