"""The ``[latency]`` table, which names the source of latencies; ``source`` selects its keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from stallward.actuator.errors import ConfigError
from stallward.actuator.parts import Part, load_part
from stallward.actuator.runtime.addresses import Address, is_loopback, parse_address

Unit = Literal["s", "ms", "us"]
UNIT_MS: Final[dict[str, float]] = {"s": 1e3, "ms": 1.0, "us": 1e-3}
"""Milliseconds in each unit."""
FAILED_WORDS: Final = (
    *("skipped", "failed", "serialization", "deadlock"),  # pgbench
    *("ko", "fail", "failure", "error", "err", "fatal", "panic"),
    *("timeout", "aborted", "canceled", "cancelled", "refused", "unavailable"),
)
"""Words that say that a request failed."""
OK_WORDS: Final = ("true", "yes", "ok", "pass", "passed", "success", "succeeded", "completed")
"""Words that say that a request was answered."""
FAILED_STATUS: Final = ("500-",)
"""The status codes of a request that failed."""
_PORTS: Final = 1 << 16
REMOTE_HINT: Final = "Ask on this machine, or write allow_remote = true if the way is trusted."


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLayout:
    """Where in a line the latency is: a field is a column (from 0) or a named group of ``pattern``."""

    start: str | None = None
    """Field of the scheduled arrival."""
    end: str | None = None
    """Field of the completion."""
    latency: str | None = None
    """Field of the latency; it may carry its unit, as ``1m2.5s``."""
    ok: str | None = None
    """Field that says whether the request was answered, by a word or a status code; by default a
    group of the pattern that is named ``ok``."""
    end_us: str | None = None
    """Field of microseconds to be added to ``end``."""
    pattern: str | None = None
    """Regular expression with named groups, searched in each line."""
    separator: str | None = None
    """What separates columns; ``None`` means white space."""
    time_unit_s: float = 1.0
    """Seconds per unit of ``start`` and ``end``."""
    latency_unit_s: float = 1.0
    """Seconds per unit of a ``latency`` that carries no unit of its own."""
    unit: str | None = None
    """Field of the latency's unit; by default a group of ``pattern`` that is named ``unit``."""
    failed_words: tuple[str, ...] = FAILED_WORDS
    """Words for a request that failed: as ``ok``, or in the place of the latency or completion."""
    ok_words: tuple[str, ...] = OK_WORDS
    """Words as ``ok`` for a request that was answered."""
    failed_status: tuple[str, ...] = FAILED_STATUS
    """Status codes as ``ok`` of requests that failed, and ranges of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesLatency(LineLayout):
    """A file or FIFO with one line per request."""

    path: Path
    source: Literal["lines"] = "lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusLatency:
    """A classic histogram that the application exposes by HTTP."""

    source: Literal["prometheus"] = "prometheus"
    url: str | None = None
    """E.g. ``http://127.0.0.1:9100/metrics``."""
    port: int | None = None
    """In place of ``url``: the port at which the protected application's pod is asked."""
    path: str = "/metrics"
    """With ``port``: what is asked for there."""
    metric: str
    """Name and matchers, as in PromQL; series that match are summed."""
    unit: Unit = "s"
    """The unit of the histogram's bounds."""
    period_s: float = 0.25
    timeout_s: float = 1.0
    allow_remote: bool = False
    """Whether the host may be another machine (or container)."""

    def __post_init__(self) -> None:
        if (self.url is None) == (self.port is None):
            raise ConfigError(
                "config.latency needs either url or port.",
                next_step="Write url, or port if the protected application is a pod.",
            )
        if self.url is None:
            _check_range("port", float(self.port or 0), 1.0, _PORTS - 1.0)
            split_url(self.url_at("127.0.0.1"), "config.latency.path")
        else:
            host, _, _ = split_url(self.url)
            if not (self.allow_remote or is_loopback(host)):
                raise ConfigError(
                    f"config.latency.url is on {host!r}, not on this machine.",
                    next_step=REMOTE_HINT,
                )
        load_part(Part.SERIES)(self.metric, "config.latency.metric")
        _check_range("period_s", self.period_s, 0.05, 10.0)
        _check_range("timeout_s", self.timeout_s, 0.05, 10.0)

    def url_at(self, address: str) -> str:
        """Return the URL of a pod; ``url`` where that is given.

        Args:
            address: The pod's IP address.
        """
        host = f"[{address}]" if ":" in address else address
        return self.url or f"http://{host}:{self.port}/{self.path.removeprefix('/')}"

    @property
    def silent_s(self) -> float:
        """A source that sends nothing for this long counts as gone."""
        return 2.0 * self.period_s + self.timeout_s + 0.5

    @property
    def window_s(self) -> float:
        """The window's length: at least two periods, so that it always holds a scrape."""
        return max(1.0, 2.0 * self.period_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsdLatency:
    """StatsD timings that the application sends by datagrams."""

    source: Literal["statsd"] = "statsd"
    metric: str
    """The name of the metric, without tags."""
    listen: str = "127.0.0.1:8125"
    """``HOST:PORT`` for UDP, or the path of a Unix datagram socket."""
    tags: tuple[str, ...] = ()
    """Tags (``name:value``) that a line must all have."""
    unit: Unit = "ms"
    """The unit of histograms (``h``) and distributions (``d``); timings (``ms``) are always in
    milliseconds."""
    allow_remote: bool = False
    """Whether other machines may reach ``listen``."""
    allowed_users: tuple[str, ...] = ()
    """The users, by name or number, whose datagrams count; all if there are none. Needs a Unix
    socket: the kernel says who sends there."""

    def __post_init__(self) -> None:
        if self.allowed_users and not self.address.path:
            raise ConfigError(
                f"config.latency.allowed_users needs a Unix socket: nothing says who sends to "
                f"{self.listen}.",
                next_step="Write the path of a socket as listen, or leave allowed_users out.",
            )
        if not all(user.strip() for user in self.allowed_users):
            raise ConfigError("config.latency.allowed_users has a user without a name.")
        if not (self.address.is_local or self.allow_remote):
            raise ConfigError(
                f"config.latency.listen is {self.listen!r}, which other machines reach.",
                next_step="Listen on 127.0.0.1 or a Unix socket, or write allow_remote = true.",
            )
        for name, value in (("metric", self.metric), *(("tags", tag) for tag in self.tags)):
            if not value or set(value) & set("|@#\n,") or (name == "metric" and ":" in value):
                raise ConfigError(
                    f"config.latency.{name}: {value!r} cannot be in a StatsD line.",
                    next_step="Write the metric without tags, and each tag as name:value in tags.",
                )

    @property
    def address(self) -> Address:
        """The address at which datagrams arrive."""
        return parse_address(self.listen, "config.latency.listen")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLatency:
    """Latencies that clients report to the service (``Report``)."""

    source: Literal["grpc"] = "grpc"


LatencyConfig = LinesLatency | PrometheusLatency | StatsdLatency | GrpcLatency


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """What the collector process is told at its start."""

    fd: int
    """A socket to the loop, for what it gathers."""
    life_fd: int
    """It ends when the other end of this descriptor is closed."""
    source: PrometheusLatency | StatsdLatency
    address_fd: int = -1
    """A socket on which comes where the application's pod is; -1 if that is not needed."""


def split_url(url: str, what: str = "config.latency.url") -> tuple[str, int, str]:
    """Split a plain HTTP address into host, port and path.

    Args:
        url: The address.
        what: Its name in messages.

    Raises:
        ConfigError: If it is not a plain HTTP address.
    """
    scheme, colon, rest = url.partition("://")
    where, slash, path = rest.partition("/")
    host, port = where, "80"
    if where.startswith("["):
        host, _, tail = where[1:].partition("]")
        port = tail.removeprefix(":") or "80"
    elif ":" in where:
        host, _, port = where.rpartition(":")
    plain = url.isascii() and url.isprintable() and not set(url) & set(' "<>\\^`{|}#@')
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < _PORTS
    if not (scheme == "http" and colon and host and is_port and plain):
        raise ConfigError(
            f"{what} is {url!r}, not an address that can be scraped.",
            next_step="Write it as http://127.0.0.1:9100/metrics (plain HTTP, no password).",
        )
    return host, int(port), f"{slash or '/'}{path}"


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"config.latency.{name} is {value:g}, outside {low:g}..{high:g}.")


def describe(config: LatencyConfig) -> str:
    """Return the name of a source in messages."""
    if isinstance(config, LinesLatency):
        return f"lines of {config.path}"
    if isinstance(config, PrometheusLatency):
        return f"latency from {config.url or f'port {config.port} of the protected pod'}"
    if isinstance(config, GrpcLatency):
        return "latency from Report of the service"
    return f"latency from StatsD at {config.listen}"
