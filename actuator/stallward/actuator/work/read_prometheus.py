"""Reading a counter from a page of Prometheus metrics."""

from __future__ import annotations

from stallward.actuator.errors import WorkError
from stallward.actuator.latency.prometheus.histogram import read_series
from stallward.actuator.latency.prometheus.http_get import ScrapeError, scrape
from stallward.actuator.latency.prometheus.selector import parse_any_selector
from stallward.actuator.work.config import PrometheusWork
from stallward.agent.sample import WorkFault


class PrometheusReader:
    """Scrapes the counters of one endpoint that a selector selects.

    Args:
        work: The source.
    """

    def __init__(self, work: PrometheusWork) -> None:
        self._url, self._timeout_s = work.url, work.timeout_s
        self._metric = work.metric
        self._selector = parse_any_selector(work.metric)

    def read(self) -> dict[str, float]:
        """Return the value of each series, by its labels.

        Raises:
            WorkError: If there is no answer in time, or no such series in it.
        """
        try:
            page = scrape(self._url, self._timeout_s)
        except ScrapeError as error:
            late = isinstance(error.__cause__, TimeoutError)
            fault = WorkFault.LATE if late else WorkFault.UNREADABLE
            raise WorkError(error.reason, fault=fault) from error
        series = read_series(page, self._selector)
        if not series:
            raise WorkError(f"has no series {self._metric}", fault=WorkFault.ABSENT)
        return series

    def close(self) -> None:
        """Do nothing: no connection is kept open between scrapes."""
