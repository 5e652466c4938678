"""The figures of the document, as its tables have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SOURCE: Final = "Su-Wei Yang, Memory Contention Aware Swap Space Management, NTUST 2019"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One run of its case study, in seconds."""

    t1_s: float
    t2_s: float
    t3_s: float
    total_s: float
    """The total as printed: that of the second run without management is 0.70 s more than the
    sum."""


WITHOUT: Final = (
    PublishedRun(t1_s=23.39, t2_s=22.97, t3_s=12.44, total_s=58.80),
    PublishedRun(t1_s=23.27, t2_s=22.75, t3_s=11.65, total_s=58.37),
    PublishedRun(t1_s=23.90, t2_s=22.68, t3_s=12.48, total_s=59.06),
)
"""Three applications that need 9 GB on a Jetson TX2 with 8 GB, without swap management."""
WITH: Final = (
    PublishedRun(t1_s=13.44, t2_s=14.31, t3_s=21.52, total_s=49.27),
    PublishedRun(t1_s=14.48, t2_s=13.85, t3_s=21.64, total_s=49.97),
    PublishedRun(t1_s=13.53, t2_s=14.33, t3_s=21.37, total_s=49.23),
)
"""The same with it."""
MOST_BY_SWAP: Final = 0.166
"""How much lower latency is at most by eliminating the thrashing, on the TX2."""
MOST_TOGETHER: Final = 0.413
"""How much lower it is at most with scheduling and direct swap access together."""
UNLABELLED_S: Final = (11.52, 10.79)
"""The averages of its last two tables, which say neither what ran nor what changed."""


def means(runs: tuple[PublishedRun, ...]) -> dict[str, float]:
    """The mean response time of each application, in s."""
    count = len(runs)
    return {
        "T1": sum(run.t1_s for run in runs) / count,
        "T2": sum(run.t2_s for run in runs) / count,
        "T3": sum(run.t3_s for run in runs) / count,
    }
