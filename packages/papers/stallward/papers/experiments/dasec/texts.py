"""What the page of the DASEC experiment says in words. Pure."""

from __future__ import annotations

from typing import Final

from stallward.papers.experiments.dasec.applications import Division

ARM_LABELS: Final = {
    "none": "none",
    "bvt": "bvt",
    "dasec": "dasec",
    "dasec:hold_periods=50": "dasec, held",
    "dasec:answers=latency": "only latency",
    "dasec:answers=layout": "only layout",
    "dasec:answers=share": "only share",
    "dasec:memory=partition": "and partition",
}
"""A controller of the experiment -> its name in tables and pictures."""
FOLLOWED: Final = ("none", "bvt", "dasec", "dasec:hold_periods=50")
"""The controllers whose threads have a table; the answers alone are between these."""
DIVIDED: Final[dict[Division, str]] = {
    "thread": "The CPU is divided thread by thread between the application and the batch jobs.",
    "group": "The CPU is divided between groups first: the application and each batch job have "
    "the same share, however many threads they have.",
}
NOT_REPEATED: Final = (
    "80 cores, and virtual machines of 16 processors: here one machine with few processors, and "
    "processes with two to a dozen threads. So a thread that is moved finds another core that is "
    "as busy.",
    "Scheduler code in the kernel, with a period of its own and the remaining timeslice of each "
    "thread: here a process decides ten times a second, from what the kernel's files tell.",
    "Neighbours that are latency-critical, too: here they are batch jobs, so that what the "
    "application gains shows as their loss. `--instances` runs several applications instead.",
    "Masstree and Silo: LMDB and RocksDB's optimistic transactions in their place, with new "
    "orders and payments of TPC-C. Action-recognize and img-dnn are left out.",
    "The baseline: theirs are latencies relative to Linux/KVM at a consolidation ratio of 0.4. "
    "Here they are relative to no control at the same ratio. PARTIES acts on groups; `compare` "
    "has it as the arm `parties`.",
)
"""What of the source could not be repeated, or is not as it was, and why."""
