"""The figures of the thesis, as its text has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SOURCE: Final = (
    "Smita Koralahalli Channabasappa, Performance Analysis and Control of Latency under Memory "
    "Pressure in the Linux Kernel for Edge Computing, UNC Charlotte 2019"
)
RISE_AT: Final = 0.99
"""The share of memory in use below which it saw no appreciable rise of the latency."""
BEST_SWAPPINESS: Final = 90
"""The swappiness that gave the best latency; the thesis has no figures of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScenario:
    """What the thesis has for one of its runs; ``None`` where its text has nothing."""

    p95_ms: float | None = None
    times: float | None = None
    """How many times the latency in isolation it calls that."""
    miss_share: float | None = None
    """The miss rate of the page cache."""
    memory: str = ""
    """What happened to resident sets and page cache, in its figures."""


NOTHING: Final = PublishedScenario()
PUBLISHED: Final = {
    "isolated": PublishedScenario(
        p95_ms=40.0,
        times=1.0,
        miss_share=0.09,
        memory="detector 0.98 to 2.1 GB, page cache 1.5 to 2.7 GB",
    ),
    "anon": PublishedScenario(
        p95_ms=600.0,
        times=20.0,
        miss_share=0.3864,
        memory="detector 1.72 to 1.62 GB, page cache 2.3 to 1.94 GB",
    ),
    "file-once": PublishedScenario(miss_share=0.0969, memory="hog 12.8 to 12.2 GB"),
    "file-again": PublishedScenario(
        p95_ms=320.0,
        times=10.0,
        miss_share=0.3492,
        memory="page cache and both resident sets fall",
    ),
    "latd": PublishedScenario(p95_ms=70.0, times=2.0),
    "latd-cgroup": PublishedScenario(p95_ms=40.0, times=1.0),
}
"""Name of a scenario -> its figures. In isolation latencies are 30 to 45 ms with a p95 of 40 ms;
the 20 and 10 times of the text are of 30 ms. Beside a file read once it saw no effect. Algorithm
3 was never run."""
