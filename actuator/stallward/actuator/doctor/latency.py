"""A try, within seconds, of a latency source: can it be read, and what comes?"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import time
from pathlib import Path
from typing import Final

from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.process_roots import user_id
from stallward.actuator.latency.config import (
    UNIT_MS,
    GrpcLatency,
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
    describe,
)
from stallward.actuator.latency.counts import LatencyCounts, Tally, too_coarse
from stallward.actuator.latency.feed import MAX_LATENCY_MS
from stallward.actuator.latency.line_format import format_of
from stallward.actuator.latency.line_source import TICK_CPU_S, LineReader, Piece, Start
from stallward.actuator.latency.prometheus.histogram import Exposition, HistogramParser
from stallward.actuator.latency.prometheus.http_get import ScrapeError, scrape
from stallward.actuator.latency.prometheus.increase import HistogramIncrease, Nothing
from stallward.actuator.latency.prometheus.scraper import PARSE_S, other_process, why_nothing
from stallward.actuator.latency.prometheus.selector import parse_selector
from stallward.actuator.latency.statsd import DatagramSocket, StatsdFilter, StatsdLines, why_none
from stallward.agent.schema.file_kinds import other_kind_of

_LISTEN_S: Final = 0.5
"""How long datagrams are waited for."""
_TAIL_BYTES: Final = 65536
"""How much of a log is read, from its end."""
_MOST_S: Final = 2.0
"""How long an endpoint may take; a slower one cannot be a source of latencies."""
_SCRAPES: Final = 4
"""Several, since the totals of several workers show only by falling."""


def try_latency(
    config: LatencyConfig | None, address: str = "", slo_ms: float | None = None
) -> Finding | None:
    """Try a source; ``None`` if there is none, or nothing in it yet.

    Args:
        config: The ``[latency]`` table.
        address: Where the protected application's pod is, for a source that is a pod.
        slo_ms: The latency target, which must be many steps of the source.
    """
    match config:
        case PrometheusLatency() if config.port is not None and not address:
            fault, next_step = "no pod with an address now", "Start it, or correct protected.pod."
            works = ""
        case PrometheusLatency():
            fault, next_step = _scrape(config, config.url_at(address), slo_ms)
            works = f"has {config.metric}"
        case StatsdLatency():
            fault, next_step, works = _bind(config)
        case GrpcLatency():
            fault, next_step, works = "", "", "absent until a client reports"
        case LinesLatency():
            hidden = _is_hidden(config.path)
            # A FIFO would be waited for.
            other = other_kind_of(config.path) if not hidden and config.path.is_file() else None
            counts = None if hidden else _read_tail(config)
            if hidden:
                fault, works = f"{config.path} cannot be read by this user", ""
                next_step = "Examine the node as root, or let this user read the log."
            elif not config.path.exists():
                fault, works = f"there is no {config.path} yet", ""
                next_step = "Start the application, or correct latency.path."
            elif other is not None:
                fault, works = f"the log is {other.what}", ""
                next_step = other.next_step or "Give the file that the application writes to."
            elif counts is not None:
                fault, next_step, works = _of_log(config, counts)
                if not fault and slo_ms is not None:
                    fault, next_step = too_coarse(counts.step_ms, slo_ms)
            else:
                return None
        case None:
            return None
    return finding("signal", describe(config), fault, next_step, works=works)


def _is_hidden(path: Path) -> bool:
    """Whether this user may not read a file, or not even see whether it is there."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(path, os.R_OK, effective_ids=True)


def _scrape(config: PrometheusLatency, url: str, slo_ms: float | None) -> tuple[str, str]:
    """Scrape some times; returns what is wrong and the next step, both empty if all is well."""
    parser = HistogramParser(parse_selector(config.metric))
    unit_ms = UNIT_MS[config.unit]
    increase, unseen = HistogramIncrease(unit_ms), ("", "")
    until_s = time.monotonic() + _MOST_S / 2.0
    for number in range(_SCRAPES):
        if number and time.monotonic() > until_s:
            break
        try:
            page = scrape(url, min(config.timeout_s, _MOST_S))
        except ScrapeError as error:
            key = "url" if config.port is None else "port"
            step = error.next_step or f"Start what serves {url}, or correct [latency] {key}."
            return error.cause, step
        exposition = parser.parse(page, time.monotonic() + PARSE_S)
        if not exposition.series:
            lack = why_nothing(config.metric, exposition)
            step = f"Correct [latency] metric; `curl {url}` shows which there are."
            return lack.cause, lack.next_step or step
        added = increase.take(exposition, time.monotonic(), time.time())
        if added in {Nothing.FELL, Nothing.OTHER_PROCESS}:
            fault = other_process()
            return fault.cause, fault.next_step
        unseen = _unseen(exposition, unit_ms, slo_ms)
    return unseen


def _unseen(exposition: Exposition, unit_ms: float, slo_ms: float | None) -> tuple[str, str]:
    """Why a histogram shows no miss of a target, and what to do; both empty if it does.

    Requests above the highest bound count as being at it. Ranges have no bounds of their own.
    """
    shown = [bound for one in exposition.series.values() for bound in one.buckets]
    highest_ms = max(filter(math.isfinite, shown), default=math.inf) * unit_ms
    if slo_ms is None or highest_ms > slo_ms:
        return "", ""
    return (
        f"its highest bound is {highest_ms:g} ms, so no miss of the target of {slo_ms:g} ms shows",
        "Give it bounds above the target, or correct [latency] unit. Some clients show a bound only "
        "once a request has reached it.",
    )


def _bind(config: StatsdLatency) -> tuple[str, str, str]:
    """Listen for a moment; returns what is wrong, the next step, and else what came."""
    address = config.address
    try:
        for user in config.allowed_users:
            user_id(user)
    except NodeError as error:
        return error.cause, "Correct [latency] allowed_users.", ""
    if address.path:  # binding would make a file, and nothing may be changed
        return *_may_make(Path(address.path)), "can be listened at"
    try:
        source = DatagramSocket(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                "another program listens there already",
                f"End it if it is no stallward daemon (`ss -lunp 'sport = :{address.port}'` "
                "names it; `stallward ctl status` says what comes to a daemon), or take another "
                "port for [latency] listen.",
                "",
            )
        fault = f"cannot listen ({os.strerror(error.errno or errno.EINVAL)})"
        return fault, "Correct [latency] listen: an address of this machine and a free port.", ""
    with contextlib.closing(source):
        return _of_datagrams(config, source)


def _of_datagrams(config: StatsdLatency, source: DatagramSocket) -> tuple[str, str, str]:
    """Take in what comes for a moment; returns as :func:`_bind` does."""
    tally, until_s = Tally(), time.monotonic() + _LISTEN_S
    wanted = StatsdFilter.of(config)

    def add(latency_ms: float, weight: float) -> bool:
        tally.accepted += weight
        return 0.0 <= latency_ms < MAX_LATENCY_MS

    lines = StatsdLines(wanted, tally, add)
    while (left_s := until_s - time.monotonic()) > 0.0:
        if select.select([source], [], [], left_s)[0] and (datagram := source.receive()):
            lines.take(datagram.content)
    tally.names = lines.other_names
    counts = tally.counts()
    lack = why_none(tally, wanted)
    if lack:
        return lack, "Correct [latency] metric or tags; the names are exact.", ""
    came = f"can be listened at; in {_LISTEN_S:g} s came {_summary(counts)}"
    if counts.malformed:
        return came, "Look at what the application sends; docs/reference/latency.md has it.", ""
    return "", "", came


def _read_tail(config: LinesLatency) -> LatencyCounts | None:
    """Read the last lines of a log, which a daemon would skip.

    Returns:
        What became of them; ``None`` if there are none.
    """
    try:
        if not config.path.is_file():  # a FIFO's writer may end with its reader
            return None
        with config.path.open("rb") as file:
            start = max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0)
            content = os.pread(file.fileno(), _TAIL_BYTES, start)
    except OSError:
        return None
    reader, until_s = LineReader(format_of(config)), time.monotonic() + _MOST_S
    reader.split(Piece(content, Start.IN_LINE if start else Start.AT_LINE))
    if not reader.is_behind:
        return None
    while reader.is_behind and time.monotonic() < until_s:
        reader.take_latencies(time.thread_time() + TICK_CPU_S)
    return reader.tally.counts()


def _of_log(config: LinesLatency, counts: LatencyCounts) -> tuple[str, str, str]:
    """Return what is wrong with a log, the next step, and else what its last lines have."""
    came = f"its last lines have {_summary(counts)}"
    if counts.malformed:
        return came, "Correct the columns or the pattern under [latency].", ""
    return "", "", came


def _summary(counts: LatencyCounts) -> str:
    rejected = [f"{n} {name.replace('_', ' ')}" for name, n in counts.rejected if n]
    first = f" (the first: {counts.first_malformed})" if counts.first_malformed else ""
    return ", ".join([f"{counts.accepted} latencies", *rejected]) + first


def _may_make(path: Path) -> tuple[str, str]:
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return (
            f"cannot make a socket in {path.parent}",
            f"Make the folder {path.parent} before the daemon starts, and let it write there.",
        )
    if path.exists() and not path.is_socket():
        return "there is another file of that name", f"Remove {path}, or correct [latency] listen."
    folder = path.parent.stat()
    if folder.st_uid not in {0, os.geteuid()} or folder.st_mode & 0o022:
        return (
            f"other users can write to {path.parent}, and could put a socket of theirs there",
            "Choose a folder that only the daemon's user can write, such as /run/stallward.",
        )
    return "", ""
