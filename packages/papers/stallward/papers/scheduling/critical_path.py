"""The threads on an application's critical path in one period. Pure.

Source: "Achieving Low Latency in Public Edges by Hiding Workloads Mutual Interference" (DASEC),
slides of the ACM Symposium on Cloud Computing. It defines the critical path as the longest
execution path from the start of a workload to its end, and judges that a task is on it if "all the
other tasks of the workload depend on the task to make progress". It does not say how that is seen.
Here it is seen in what /proc tells:

* One thread runs or is ready, and all others that had anything to do are asleep. None of them
  makes progress until this one does: it is the critical path.
* Several threads run or are ready, or none. None then holds up all the others, and the workload
  ends with its longest part. So the definition decides: the path is the thread that wanted to run
  for the longest, and those that wanted to for nearly as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallward.agent.threads import ThreadRef
from stallward.papers.scheduling.thread_period import NEARLY_RATIO, ThreadPeriod


def critical_path(periods: Sequence[ThreadPeriod]) -> frozenset[ThreadRef]:
    """The threads on the critical path; none if no thread had anything to do.

    Args:
        periods: All threads of the application in one period.
    """
    active = [period for period in periods if period.active]
    ready = [period for period in active if period.ready]
    if len(ready) == 1:
        return frozenset({ready[0].thread})
    longest_us = max((period.demand_us for period in active), default=0)
    return frozenset(
        period.thread for period in active if period.demand_us >= NEARLY_RATIO * longest_us
    )
