"""A try, within seconds, of a latency source that the loop does not read itself."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Final

from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.latency.config import (
    UNIT_MS,
    GrpcLatency,
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.latency.open_source import describe
from stallward.actuator.latency.prometheus.histogram import HistogramParser
from stallward.actuator.latency.prometheus.http_get import ScrapeError, scrape
from stallward.actuator.latency.prometheus.increase import HistogramIncrease, Nothing
from stallward.actuator.latency.prometheus.scraper import PARSE_S, other_process, why_nothing
from stallward.actuator.latency.prometheus.selector import parse_selector
from stallward.actuator.latency.statsd.receiver import listen

_MOST_S: Final = 2.0
"""How long an endpoint may take; a slower one cannot be a source of latencies."""
_SCRAPES: Final = 4
"""Several, since the totals of several workers show only by falling."""


def try_latency(config: LatencyConfig | None) -> Finding | None:
    """Try a source; ``None`` if there is none, or if reading a sample tries it anyway.

    Args:
        config: The ``[latency]`` table.
    """
    match config:
        case PrometheusLatency():
            fault, next_step = _scrape(config)
            works = f"has {config.metric}"
        case StatsdLatency():
            fault, next_step = _bind(config)
            works = "can be listened at"
        case GrpcLatency():
            fault, next_step, works = "", "", "absent until a client reports"
        case LinesLatency() | None:
            return None
    return finding("signal", describe(config), fault, next_step, works=works)


def _scrape(config: PrometheusLatency) -> tuple[str, str]:
    """Scrape some times; returns what is wrong and the next step, both empty if all is well."""
    parser = HistogramParser(parse_selector(config.metric))
    increase = HistogramIncrease(UNIT_MS[config.unit])
    until_s = time.monotonic() + _MOST_S / 2.0
    for number in range(_SCRAPES):
        if number and time.monotonic() > until_s:
            break
        try:
            page = scrape(config.url, min(config.timeout_s, _MOST_S))
        except ScrapeError as error:
            step = error.next_step or f"Start what serves {config.url}, or correct [latency] url."
            return error.cause, step
        exposition = parser.parse(page, time.monotonic() + PARSE_S)
        if not exposition.series:
            lack = why_nothing(config.metric, exposition)
            step = f"Correct [latency] metric; `curl {config.url}` shows which there are."
            return lack.cause, lack.next_step or step
        added = increase.take(exposition, time.monotonic(), time.time())
        if added in {Nothing.FELL, Nothing.OTHER_PROCESS}:
            fault = other_process()
            return fault.cause, fault.next_step
    return "", ""


def _bind(config: StatsdLatency) -> tuple[str, str]:
    """Listen once; returns what is wrong and the next step, both empty if all is well."""
    address = config.address
    if address.path:  # binding would make a file, and nothing may be changed
        return _may_make(Path(address.path))
    try:
        listen(address).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                "another program listens there already",
                f"End it if it is no stallward daemon (`ss -lunp 'sport = :{address.port}'` "
                "names it), or take another port for [latency] listen.",
            )
        fault = f"cannot listen ({os.strerror(error.errno or errno.EINVAL)})"
        return fault, "Correct [latency] listen: an address of this machine and a free port."
    return "", ""


def _may_make(path: Path) -> tuple[str, str]:
    if path.exists() and not path.is_socket():
        return "there is another file of that name", f"Remove {path}, or correct [latency] listen."
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return (
            f"cannot make a socket in {path.parent}",
            f"Make the folder {path.parent} before the daemon starts, and let it write there.",
        )
    return "", ""
