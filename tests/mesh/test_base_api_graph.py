"""The rows of the graph helpers: adjacency, colours, partition."""

import networkx
import pytest
import torch
from scipy.sparse import csr_array

import tensormesh as tm
from tensormesh import Mesh
from tensormesh.mesh import graph_coloring, graph_partition
from tensormesh.mesh.adjacency import element_adjacency, node_adjacency
from tensormesh.mesh.partition import partition_mesh
from tensormesh.sparse import SparseMatrix

MESHES = {
    "mixed": Mesh.gen_rectangle(element_type="mixed", n=(4, 3)),
    "tet": Mesh.gen_cube(n=(3, 3, 3)),
    "tet10": Mesh.gen_cube(order=2, n=(2, 2, 2)),
    "wedge": Mesh.gen_cube(element_type="wedge", n=(2, 3, 2)),
}


@pytest.fixture(params=MESHES)
def mesh(request):
    return MESHES[request.param]


def test_row_exports_of_mesh():
    """base-api 1 | `tensormesh.mesh`: `Mesh`, `graph_coloring`, `graph_partition`, ..."""
    assert tm.mesh.Mesh is Mesh
    assert tm.mesh.graph_partition is graph_partition
    assert callable(partition_mesh)


def test_row_node_adjacency(mesh):
    """base-api 2 | `node_adjacency(element_type=None)`: float32 ones, diagonal, cells full."""
    A = mesh.node_adjacency()
    assert isinstance(A, SparseMatrix)
    assert A.dtype == torch.float32
    dense = torch.zeros(mesh.n_points, mesh.n_points)
    for conn in mesh.top_cells().values():
        for nodes in conn:
            dense[nodes.unsqueeze(1), nodes] = 1
    assert torch.equal(A.to_dense(), dense)
    assert A.nnz == dense.count_nonzero()
    assert torch.equal(node_adjacency(mesh).to_dense(), dense)


def test_row_node_adjacency_of_a_type():
    """base-api 2 | `node_adjacency(element_type)`: cells of one type only."""
    mesh = MESHES["mixed"]
    A = mesh.node_adjacency("line").to_dense()
    on_boundary = mesh.boundary_mask
    # Each node of a closed curve has itself and two neighbours.
    assert torch.equal(A.sum(dim=1), 3.0 * on_boundary)
    with pytest.raises(KeyError, match="tetra"):
        mesh.node_adjacency("tetra")


def test_row_element_adjacency(mesh):
    """base-api 2 | `element_adjacency(element_type=None)`: symmetric, no diagonal, facets."""
    A = mesh.element_adjacency()
    dense = A.to_dense()
    assert A.shape == (mesh.n_elements, mesh.n_elements)
    assert A.dtype == torch.float32
    assert torch.equal(dense, dense.T)
    assert not dense.diagonal().any()
    assert set(A.edata.tolist()) == {1.0}
    # Sides of cells that are not on the boundary have one neighbour each.
    n_sides = sum(
        len(conn) * tm.element_type2element(kind).get_n_facet()
        for kind, conn in mesh.top_cells().items()
    )
    assert A.nnz == n_sides - len(mesh.boundary_facets())
    assert torch.equal(element_adjacency(mesh).to_dense(), dense)


def test_row_element_adjacency_of_a_type():
    """base-api 2 | `element_adjacency(element_type)`: cells of one type only."""
    mesh = MESHES["mixed"]
    n_quads = len(mesh.cells["quad"])
    whole = mesh.element_adjacency().to_dense()
    assert torch.equal(mesh.element_adjacency("quad").to_dense(), whole[:n_quads, :n_quads])


def test_row_color(mesh):
    """base-api 2 | `color(element_type=None)`: int64 `[n_elements]`, neighbours differ."""
    colours, A = mesh.color(), mesh.element_adjacency()
    assert colours.dtype == torch.int64
    assert colours.shape == (mesh.n_elements,)
    assert (colours[A.row] != colours[A.col]).all()
    assert torch.equal(colours, mesh.color())
    assert 0 <= colours.min() <= colours.max() <= int(A.to_dense().sum(dim=1).max())


@pytest.mark.parametrize(
    "graph",
    [
        networkx.complete_graph(120),
        networkx.star_graph(50),
        networkx.path_graph(300),
        networkx.gnp_random_graph(80, 0.2, seed=1),
        networkx.empty_graph(5),
    ],
    ids=["complete", "star", "path", "random", "empty"],
)
def test_row_graph_coloring(graph):
    """base-api 6 | `graph_coloring(adjacency, max_iter=100)`: int64 `[N]`.

    features | graph_coloring: serial.
    """
    adjacency = csr_array(networkx.to_scipy_sparse_array(graph))
    colours = graph_coloring(adjacency)
    assert colours.dtype == torch.int64
    assert all(colours[i] != colours[j] for i, j in graph.edges)
    highest = max((degree for _, degree in graph.degree), default=0)
    assert colours.max() <= highest
    assert set(colours.tolist()) == set(range(int(colours.max()) + 1))


def test_row_graph_coloring_needs_as_many_colours_as_a_clique():
    """base-api 6 | `graph_coloring`: more rounds than `max_iter` are no failure."""
    complete = csr_array(networkx.to_scipy_sparse_array(networkx.complete_graph(120)))
    assert sorted(graph_coloring(complete, max_iter=3).tolist()) == list(range(120))


def test_row_partition():
    """base-api 2 | `partition(num_parts=None, method='coordinate', devices=None)`."""
    mesh = MESHES["tet"]
    dmesh = mesh.partition(3, method="spectral", devices=["cpu"] * 3)
    assert isinstance(dmesh, tm.DistributedMesh)
    assert (len(dmesh), dmesh.method) == (3, "spectral")
    assert sum(part.n_elements for part in dmesh.submeshes) == mesh.n_elements
    assert mesh.partition().method == "coordinate"


def test_row_graph_helpers_follow_the_device_of_the_mesh():
    """base-api 2 | graph helpers: results are on the device of the mesh."""
    mesh = MESHES["mixed"].clone()
    assert mesh.color().device == mesh.node_adjacency().device == mesh.device
