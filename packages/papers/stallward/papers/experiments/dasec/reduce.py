"""From the recording of a run to what is kept of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.env.recording.recording import Recording
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.result import DasecRun
from stallward.papers.experiments.dasec.threads import ThreadReading, thread_figures

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
P50: Final = QUANTILES.index(0.5)
P99: Final = QUANTILES.index(0.99)


def reduce_run(recording: Recording, readings: Sequence[ThreadReading]) -> DasecRun:
    """What is kept of a run.

    Args:
        recording: The run.
        readings: The application's threads while it ran.

    Raises:
        ReplicationError: If no request was due in the measured part.
    """
    run = recording.run
    from_s, to_s = run.measured_from_s, run.end_s
    due = recording.requests.where(recording.requests.scheduled_s >= from_s)
    if not due.scheduled_s.size:
        raise ReplicationError(
            f"{run.scenario}: no request was due in the run.",
            next_step="Check what the load generator wrote.",
        )
    latency_ms = (due.end_s - due.scheduled_s) * 1e3
    answered = int((due.ok & (due.end_s <= to_s)).sum())
    rates = [
        rate
        for slot in range(len(run.slot_names))
        if (rate := recording.units.rate_per_s(slot, from_s, to_s)) is not None
    ]
    return DasecRun(
        requests=int(due.scheduled_s.size),
        answered_per_s=answered / (to_s - from_s),
        mean_ms=float(latency_ms.mean()),
        quantiles_ms=tuple(np.round(np.quantile(latency_ms, QUANTILES), 4).tolist()),
        batch_per_s=sum(rates) if run.condition != "alone" and rates else None,
        threads=thread_figures(readings, from_s, to_s),
        stolen_share=run.stolen_share or 0.0,
        node=run.node,
    )
