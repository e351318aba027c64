"""Fixtures for the whole suite: live ranks."""

from collections.abc import Iterator

import pytest

from tests.rank_pool import RankPool


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Pool of four ranks, started at first use: ``ranks(n, fn, *args)`` for n up to 4."""
    pool = RankPool(4, tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def ranks8(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Pool of eight ranks, for the module that asks for it."""
    pool = RankPool(8, tmp_path_factory.mktemp("ranks8"))
    yield pool
    pool.stop()
