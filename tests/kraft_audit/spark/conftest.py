"""One Spark session for all tests of this folder, and small plans without any log behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from kraft_audit.replay.plan import ClusterPlan, FilePlan, ReplicaPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakePlan = Callable[..., ClusterPlan]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from kraft_audit.spark.session import spark_session

    session = spark_session("kraft-audit tests", settings={"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture
def make_plan() -> MakePlan:
    """A plan of one cluster with one replica whose log has `size_bytes`."""

    def make(name: str, number: int = 1, size_bytes: int = 1000) -> ClusterPlan:
        log = FilePlan("__cluster_metadata-0/00000000000000000000.log", "log", 0, None, size_bytes, 0)
        replica = ReplicaPlan("/nowhere", "node-1", "", 0, 0, name, 1, None, (log,))
        return ClusterPlan(number, name, name, "kip853", (replica,))

    return make
