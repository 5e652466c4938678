"""What a daemon says of itself when it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stallward.actuator.cli.serve import start_lines
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    PolicyConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.latency.config import LinesLatency
from stallward.actuator.targets.config import PodConfig
from stallward.actuator.targets.qos import Qos
from stallward.actuator.work.config import FileWork

PATH = Path("/etc/stallward/stallward.toml")
PLAIN = DaemonConfig(
    protected=ProtectedConfig(group="web"), background=(SlotConfig(name="sort", group="sort"),)
)


def lines(config: DaemonConfig) -> list[str]:
    return list(start_lines(config, PATH, "0.1.0"))


def test_the_version_the_configuration_and_the_sources_are_said() -> None:
    work = FileWork(path=Path("/run/steps"), unit="steps")
    config = replace(
        PLAIN,
        background=(
            SlotConfig(name="train", group="jobs/train", work=work),
            SlotConfig(name="sort", processes=ProcessesConfig(command="(^|/)sort")),
            SlotConfig(name="pods", pod=PodConfig(namespace="batch", qos=(Qos.BEST_EFFORT,))),
        ),
        control=ControlConfig(slo_ms=7.0),
        latency=LinesLatency(path=Path("/var/log/web.log"), latency="2"),
        record=RecordConfig(dir=Path("/var/lib/records")),
        policy=PolicyConfig(store=Path("/var/lib/policies")),
        service=ServiceConfig(socket=Path("/run/s.sock"), metrics="127.0.0.1:9180"),
    )
    assert lines(config) == [
        "version 0.1.0 starts with /etc/stallward/stallward.toml",
        "it protects web (p95 within 7 ms) from train (jobs/train), "
        "sort (processes that match '(^|/)sort'), pods (pods batch BestEffort)",
        "partition decides",
        "lines of /var/log/web.log",
        "work of train: steps from /run/steps",
        "records in /var/lib/records, pushed policies in /var/lib/policies, "
        "metrics at 127.0.0.1:9180, journal of changes in /run/stallward/journal",
        "ask it with `stallward ctl status --socket /run/s.sock`; Ctrl-C or SIGTERM ends it",
    ]


def test_a_daemon_that_changes_nothing_says_so() -> None:
    dry = replace(PLAIN, control=ControlConfig(dry_run=True))
    assert "partition decides, and nothing is changed (dry_run)" in lines(dry)
    watching = replace(PLAIN, control=ControlConfig(controller="none"))
    assert "none decides, which changes nothing" in lines(watching)
    assert "no latencies: stalls alone show pressure" in lines(watching)
    assert lines(watching)[-1].startswith("ask it with `stallward ctl status`")
