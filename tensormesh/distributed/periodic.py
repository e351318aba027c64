"""Nodes of opposite sides that belong together, where each rank knows its own only."""

from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from tensormesh.distributed.collectives import agree, all_gather_rows, all_max
from tensormesh.distributed.delivery import Delivery
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.forms import refuse_different
from tensormesh.distributed.index_map import IndexMap
from tensormesh.operator.periodic import checked_translations, leads_nowhere

# Bins a rank along the longest side of the body: enough for each rank to get some.
_BINS = 8
# Nodes of generated meshes would be on the borders of bins that start at a corner.
_SHIFT = 0.37


def periodic_pairs(
    places: Tensor, number: Tensor, index_map: IndexMap, device_mesh: DeviceMesh, given: Any
) -> tuple[Tensor, Tensor]:
    """Pairs whose slaves this rank owns. **Collective.**

    Parameters
    ----------
    places, number
        Coordinates ``[k, dim]`` of owned nodes, and their global indices, int64 ``[k]``.
    index_map
        The numbering.
    device_mesh
        Its ranks.
    given
        Translations and tolerance, as of `tensormesh.operator.periodic_pairs`.

    Returns
    -------
    slave, master
        Original ids, int64 ``[n_pairs]``.
    """
    with agree(device_mesh):
        shifts = checked_translations(places, *given)
    tolerance = float(given[1])
    refuse_different([f"translations {shifts.tolist()}", f"tolerance {tolerance}"], device_mesh)
    search = _Search(places.double(), number, tolerance, device_mesh)
    master_of = torch.full((index_map.n_owned,), -1, device=number.device)
    for shift in shifts:
        master, image = search.images(torch.from_numpy(shift).to(places.device))
        if not all_max(master.numel(), device_mesh):
            raise leads_nowhere(shift, tolerance)
        ids = index_map.owned_ids[master - index_map.first]
        telling = Delivery(index_map.owner(image), device_mesh)
        slave, ids = telling.there(image) - index_map.first, telling.there(ids)
        new = master_of[slave] < 0
        master_of[slave[new]] = ids[new]
    follows = (master_of >= 0).nonzero().flatten()
    slave, order = torch.sort(index_map.owned_ids[follows])
    return slave, master_of[follows][order]


class _Search:
    """Finds nodes by their place. A bin of space belongs to one rank, where both sides meet."""

    def __init__(
        self, places: Tensor, number: Tensor, tolerance: float, device_mesh: DeviceMesh
    ) -> None:
        self._places, self._number, self._tolerance = places, number, tolerance
        self._device_mesh = device_mesh
        far = torch.full((1, places.shape[1]), torch.inf, dtype=places.dtype, device=places.device)
        corners = torch.stack([torch.cat([places, far]).amin(0), torch.cat([places, -far]).amax(0)])
        corners = all_gather_rows(corners.unsqueeze(0), device_mesh)
        self._low, self._high = corners[:, 0].amin(0), corners[:, 1].amax(0)
        longest = float((self._high - self._low).max())
        self._width = max(longest / (_BINS * device_mesh.size()), 4 * tolerance)

    def images(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Own nodes that have an image, and the images, by global index. **Collective.**"""
        # The images of most nodes would be outside: these need not ask.
        asks = self._inside(self._places + shift).nonzero().flatten()
        places = self._places[asks] + shift
        query, home = self._homes_near(places)
        image, distance = self._nearest(places[query], home, shift)
        order = np.lexsort((distance.cpu().numpy(), query.cpu().numpy()))
        best = order[np.unique(query.cpu().numpy()[order], return_index=True)[1]]
        image, master = image[best], self._number[asks[query[best]]]
        found = (image >= 0) & (image != master)
        return master[found], image[found]

    def _nearest(self, places: Tensor, home: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Number of the node nearest to each place in a bin, -1 for none, and its distance."""
        known = self._inside(self._places - shift)
        telling = Delivery(self._home(self._places[known]), self._device_mesh)
        tree = cKDTree(telling.there(self._places[known]).cpu().numpy())
        number = telling.there(self._number[known])
        asking = Delivery(home, self._device_mesh)
        distance, place = tree.query(
            asking.there(places).cpu().numpy(), distance_upper_bound=self._tolerance
        )
        number = torch.cat([number, number.new_tensor([-1])])
        answer = number[torch.from_numpy(place).to(number.device)]
        return asking.back(answer), asking.back(torch.from_numpy(distance).to(places))

    def _inside(self, places: Tensor) -> Tensor:
        slack = self._tolerance
        return ((places >= self._low - slack) & (places <= self._high + slack)).all(1)

    def _home(self, places: Tensor) -> Tensor:
        """Rank that the bin of each place belongs to: bins are dealt along diagonals."""
        bins = torch.floor((places - self._low) / self._width + _SHIFT).to(torch.int64)
        return bins.sum(1) % self._device_mesh.size()

    def _homes_near(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Each place with each rank that may have a node near it: place and rank, ``[m]``."""
        size, dim = self._device_mesh.size(), places.shape[1]
        steps = places.new_tensor(list(product((-1.0, 1.0), repeat=dim)))
        homes = torch.stack([self._home(places + self._tolerance * step) for step in steps], 1)
        query = torch.arange(len(places), device=places.device).unsqueeze(1)
        pairs = torch.unique(query * size + homes)
        return torch.div(pairs, size, rounding_mode="floor"), pairs % size
