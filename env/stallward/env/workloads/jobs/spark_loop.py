"""Works for ever in Spark; a unit is one job, a table that is made, shuffled and aggregated.

Spark runs in one Java virtual machine on this machine, with one worker thread. Some tables stay
cached between the jobs and are read by a later one, as in iterative work. If the virtual machine
ends after it has worked, another one is started.

Run: ``python -m stallward.env.workloads.jobs.spark_loop --scratch DIR --report PATH``
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession, functions

from stallward.actuator.runtime.process_start import interpreter
from stallward.env.workloads.report import UnitReport

CACHED_TABLES: Final = 4
"""How many tables stay cached."""
_GROUPS: Final = 20_000


def open_session(*, heap_mib: int, scratch: Path) -> Any:
    """Start Spark on loopback, without its web page, and with its files in ``scratch``."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # noqa: TID251
    collector = f"-XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={scratch}"
    settings = {
        "spark.driver.memory": f"{heap_mib}m",
        "spark.driver.extraJavaOptions": collector,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]").appName("stallward")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Jobs:
    """The jobs of one session.

    Args:
        session: The session.
        rows: How many rows a table has.
        seed: The seed of the values and of the choice of tables.
    """

    def __init__(self, session: Any, *, rows: int, seed: int) -> None:
        self._session = session
        self._rows = rows
        self._rng = random.Random(seed)  # noqa: S311 - not for secrets
        self.tables: list[Any] = []
        """The tables that are cached, oldest first."""

    def step(self) -> int:
        """Make a table, shuffle it, join its groups with those of a cached one; count the rows."""
        table = self._session.range(self._rows, numPartitions=4).select(
            functions.xxhash64("id", functions.lit(self._rng.getrandbits(32))).alias("value"),
            (functions.rand(self._rng.getrandbits(31)) * _GROUPS).cast("int").alias("group"),
        )
        groups = table.groupBy("group").agg(
            functions.sum("value").alias("total"),
            functions.collect_list("value").alias("values"),
        )
        if len(self.tables) == CACHED_TABLES:
            self.tables.pop(0).unpersist()
        self.tables.append(groups.cache())
        other = self._rng.choice(self.tables).select("group", functions.size("values").alias("n"))
        joined = groups.join(other, "group").agg(functions.sum("n"))
        return int(joined.collect()[0][0] or 0)


def main() -> None:
    """Do jobs until killed, with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--heap-mib", type=int, default=512, help="Spark wants 450 or more")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    report = UnitReport(args.report)
    report.add(0)
    session = open_session(heap_mib=args.heap_mib, scratch=args.scratch)
    jobs = Jobs(session, rows=args.rows, seed=args.seed)
    jobs.step()
    report.add(1)
    try:
        while True:
            jobs.step()
            report.add(1)
    except (Py4JError, ConnectionError, EOFError):
        argv = [*interpreter(), "-m", "stallward.env.workloads.jobs.spark_loop", *sys.argv[1:]]
        os.execv(argv[0], argv)  # noqa: S606 - no shell on purpose


if __name__ == "__main__":
    main()
