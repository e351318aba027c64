"""Is there anything in a picture?"""

from pathlib import Path

import numpy as np
from matplotlib.image import imread


def inked(path: Path) -> float:
    """Share of the pixels of a PNG that are not white."""
    pixels = imread(path)[..., :3]
    return float(np.mean(pixels.min(axis=-1) < 1.0))


def n_colours(path: Path) -> int:
    """Number of different colours in a PNG."""
    pixels = imread(path)[..., :3]
    return len(np.unique(pixels.reshape(-1, 3), axis=0))
