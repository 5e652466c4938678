"""Several instances side by side: what runs, the load, figures, resuming and the page."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from invented_detector import NODE
from invented_instances import COSTS, CPUS, TIMES, InventedInstances

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml, load_config
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.env.recording.recording import Requests, Units
from stallward.env.sandbox.block import ApplicationRequests, BlockResult, BlockSite
from stallward.env.sandbox.sandbox import Sandbox
from stallward.evaluation.arms import Arm
from stallward.evaluation.cli import main
from stallward.evaluation.errors import PlanError
from stallward.evaluation.report.experiment_page import render_experiment_page
from stallward.evaluation.results.serialise import load
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.applications import (
    MOST_INSTANCES,
    PAIRS,
    Application,
    instances_scenario,
)
from stallward.papers.experiments.dasec.instances.experiment import (
    InstancesRequest,
    run_instances_experiment,
)
from stallward.papers.experiments.dasec.instances.figures import (
    CpuReading,
    rates_per_s,
    reduce_block,
    request_cost,
)
from stallward.papers.experiments.dasec.instances.page import instances_page
from stallward.papers.experiments.dasec.instances.result import InstancesResult
from stallward.papers.experiments.dasec.instances.session import GroupTime, instances_config
from stallward.papers.experiments.dasec.instances.steps import (
    ARMS,
    Cell,
    cells_of,
    parse_counts,
    parse_loads,
    parse_mixes,
    plan_runs,
)
from stallward.papers.experiments.dasec.instances.tables import (
    RUNS_FILE,
    cells_table,
    instances_table,
)
from stallward.papers.experiments.runs import RESULT_FILE

pytestmark = pytest.mark.reaches()

BOTH: tuple[Application, ...] = ("memcached", "ordered")


def request(out: Path, **changed: object) -> InstancesRequest:
    base = InstancesRequest(
        out=out, repeats=3, minutes=10.0, cpus=CPUS, counts=(2, 4), loads=(0.4, 0.95)
    )
    return replace(base, **changed)  # type: ignore[arg-type]


def run(out: Path, runner: InventedInstances | None = None, **changed: object) -> InstancesResult:
    return run_instances_experiment(
        request(out, **changed), opener=(runner or InventedInstances()).opened
    )


# ---------- What runs


def test_instances_are_of_one_application_or_of_each_in_turn() -> None:
    cells = cells_of(BOTH, (3,), ("same", "mixed"), (0.5,))
    assert [(cell.mix, cell.applications) for cell in cells] == [
        ("memcached", ("memcached",) * 3),
        ("ordered", ("ordered",) * 3),
        ("mixed", ("memcached", "ordered", "memcached")),
    ]


def test_every_round_has_every_run_once_and_no_controller_is_always_first() -> None:
    cells = cells_of(BOTH, (2, 6), ("same", "mixed"), (0.4, 0.95))
    runs = plan_runs(cells, repeats=4, seed=1)
    assert len({one.key for one in runs}) == len(runs) == 4 * len(cells) * len(ARMS)
    groups = [runs[i : i + len(ARMS)] for i in range(0, len(runs), len(ARMS))]
    firsts: dict[Cell, list[str]] = {}
    for group in groups:
        assert len({(one.cell, one.repeat) for one in group}) == 1, "interleaved within a cell"
        assert {one.controller for one in group} == set(ARMS)
        firsts.setdefault(group[0].cell, []).append(group[0].controller)
    assert all(set(of_cell) == set(ARMS) for of_cell in firsts.values())
    orders = [[one.cell for one in runs if one.repeat == n] for n in (1, 2)]
    assert orders[0] != orders[1], "the order of the cells is drawn"


def test_each_instance_has_a_real_time_load_generator_with_arrivals_of_its_own() -> None:
    rates = [100.0 * (1 + number) for number in range(MOST_INSTANCES)]
    scenario = instances_scenario(("memcached", "ordered") * (MOST_INSTANCES // 2), rates)
    assert not scenario.background
    seeds = []
    for rate_per_s, one in zip(rates, scenario.applications, strict=True):
        argv = one.load.argv
        assert argv[:2] == ("chrt", "--fifo")
        assert float(argv[argv.index("--rate") + 1]) == rate_per_s
        seeds.append(argv[argv.index("--seed") + 1])
        text = argv[argv.index("--request") + 1]
        assert text.count("set %K") + text.count("set k%K") == PAIRS
        assert text.count("%K") == 2 * PAIRS, "as many keys are read"
    assert len(set(seeds)) == len({one.name for one in scenario.applications}) == MOST_INSTANCES


def test_what_the_user_writes_is_parsed_or_refused() -> None:
    assert parse_counts(" 2, 6,") == (2, 6)
    assert parse_mixes("mixed") == ("mixed",)
    assert parse_loads("0.4,.95") == (0.4, 0.95)
    assert parse_mixes("") == ("same", "mixed")
    for parse, wrong in (
        (parse_counts, "1"), (parse_counts, "7"), (parse_counts, "two"), (parse_mixes, "other"),
        (parse_loads, "1.0"), (parse_loads, "95%"), (parse_loads, "nan"),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=repr(wrong)):
            parse(wrong)
    with pytest.raises(PlanError, match="only one is named"):
        cells_of(("ordered",), (2,), ("mixed",), (0.5,))
    with pytest.raises(PlanError, match="of classifier"):
        cells_of(("classifier",), (2,), ("same",), (0.5,))


def test_the_daemon_protects_every_instance_and_reads_no_latencies(tmp_path: Path) -> None:
    for controller in ARMS:
        config = instances_config(site(), tmp_path, Arm(label=controller, spec=controller))
        file = tmp_path / "daemon.toml"
        file.write_text(config_toml(config))
        read: DaemonConfig = load_config(file)
        assert [one.group for one in read.applications] == [
            "stallward/x/app", "stallward/x/app-instance1"
        ]  # fmt: skip
        assert not any(read.latencies)
        assert read.guard.allow_protected_threads == (controller != "none")
        assert read.control.controller == controller


def site() -> BlockSite:
    scenario = instances_scenario(BOTH, (10.0, 10.0))
    root = Path("/nowhere")
    hierarchy = Hierarchy(kind="v2", memory_root=root, unified_root=root)
    zone = hierarchy.group("stallward/x")
    sandbox = Sandbox(
        zone=zone,
        protected=zone.child("app"),
        others=(zone.child("app-instance1"),),
        slots=(),
        load=hierarchy.group("stallward/x-load"),
        peer=hierarchy.group("stallward/x-peer"),
        folder=Path("/nowhere"),
        paths=Paths(),
    )
    return BlockSite(
        scenario=scenario,
        condition="alone",
        sandbox=sandbox,
        latency=replace(scenario.protected.latency, path="/nowhere/0"),
        others=(replace(scenario.others[0].latency, path="/nowhere/1"),),
        units=(),
        limit_bytes=1 << 30,
        out_dir=Path("/nowhere"),
    )


# ---------- The load


def test_all_instances_have_the_same_part_of_the_load() -> None:
    applications: tuple[Application, ...] = ("memcached", "ordered", "memcached", "ordered")
    rates = rates_per_s(applications, 0.95, COSTS, CPUS)
    assert rates[0] == 4 * rates[1], "a request to the store costs four times as much"
    used_us = [
        rate_per_s * (COSTS[one].service_us + COSTS[one].generator_us)
        for one, rate_per_s in zip(applications, rates, strict=True)
    ]
    assert used_us == pytest.approx([0.95 * CPUS * 1e6 / 4] * 4)


def due(took_ms: float) -> Requests:
    """One in the burn-in, then five in a second."""
    scheduled_s = np.array([100.5, 101.1, 101.3, 101.5, 101.7, 101.9])
    return Requests(
        scheduled_s=scheduled_s,
        start_s=scheduled_s,
        end_s=scheduled_s + np.array([0.9, *([took_ms / 1e3] * 4), 0.2]),
        ok=np.ones(6, bool),
    )


def block(*others: Requests) -> BlockResult:
    return BlockResult(
        scenario="dasec-instances",
        condition="alone",
        seed=1,
        start_s=100.0,
        end_s=102.0,
        burn_in_s=1.0,
        limit_bytes=1,
        requests=due(1.0),
        others=tuple(
            ApplicationRequests(name="instance1", slo_ms=5.0, requests=one) for one in others
        ),
        units=Units.empty(),
        psi_some_share=None,
        oom_kills=0,
        limit_kills=0,
        stolen_share=0.02,
    )


READINGS = [
    CpuReading(
        time_s=time_s, services_s=services_s, generators_s=generators_s, machine_s=machine_s
    )
    for time_s, services_s, generators_s, machine_s in (
        (100.2, 0.0, 0.0, 40.0),  # the burn-in
        (101.0, 1.0, 0.5, 41.0),
        (101.5, 1.5, 0.6, 41.7),
        (102.0, 2.0, 0.7, 42.4),
        (102.4, 0.0, 0.0, 42.5),  # all have ended
    )
]


def test_latencies_and_cpu_time_are_those_of_the_measured_part() -> None:
    found = reduce_block(block(due(3.0)), BOTH, READINGS, CPUS, NODE)
    assert [one.application for one in found.instances] == list(BOTH)
    first, second = found.instances
    assert first.requests == 5
    assert first.mean_ms == pytest.approx((4 * 1.0 + 200.0) / 5)
    assert (first.p50_ms, second.p50_ms) == pytest.approx((1.0, 3.0))
    assert first.p99_ms > 100.0
    assert first.answered_share == pytest.approx(4 / 5), "one came after the end"
    assert found.cpu.services == pytest.approx(1.0 / CPUS)
    assert found.cpu.generators == pytest.approx(0.2 / CPUS)
    assert found.cpu.machine == pytest.approx(1.4 / CPUS)
    with pytest.raises(ReplicationError, match="No request to ordered was due"):
        reduce_block(block(due(3.0).where(np.zeros(6, bool))), BOTH, READINGS, CPUS, NODE)
    with pytest.raises(ReplicationError, match="was not read"):
        reduce_block(block(due(3.0)), BOTH, READINGS[:2], CPUS, NODE)


def test_the_cost_of_a_request_is_its_cpu_time_alone() -> None:
    alone = reduce_block(block(), BOTH[:1], READINGS, CPUS, NODE)
    cost = request_cost(alone, measured_s=1.0, cpus=CPUS)
    assert cost.service_us == pytest.approx(1e6 / 4), "four of the five were answered"
    assert cost.generator_us == pytest.approx(2e5 / 4)
    silent = replace(alone, instances=(replace(alone.instances[0], answered_share=0.0),))
    with pytest.raises(ReplicationError, match="memcached alone answered nothing"):
        request_cost(silent, measured_s=1.0, cpus=CPUS)


# ---------- All runs


def test_latencies_are_compared_within_each_round(tmp_path: Path) -> None:
    """Rounds differ by far more than controllers do; all runs of one have the same arrivals."""
    runner = InventedInstances()
    result = run(tmp_path / "out", runner)
    assert result.done_runs == result.planned_runs == len(runner.ran) == 3 * 3 * 2 * 2 * len(ARMS)
    assert [(cell.mix, cell.instances, cell.load) for cell in result.cells[-2:]] == [
        ("mixed", 4, 0.4), ("mixed", 4, 0.95)
    ]  # fmt: skip
    for cell in result.cells:
        for arm, figures in cell.arms.items():
            times = TIMES.get(arm, 1.0)
            assert figures.runs == 3
            assert figures.mean_ratio.value == pytest.approx(times)
            assert figures.p99_ratio.value == pytest.approx(times)
            first, second = figures.instances[:2]
            assert second.mean_ms.value == pytest.approx(2 * (first.mean_ms.value or 0.0))
            middle = np.prod([one.p99_ms.value or 0.0 for one in figures.instances])
            assert figures.p99_ms.value == pytest.approx(middle ** (1 / cell.instances))
            assert figures.answered_share == pytest.approx(0.98)
            assert figures.cpu.services + figures.cpu.generators == pytest.approx(cell.load)
        bvt = cell.arms["bvt"]
        assert bvt.mean_ratio.low == pytest.approx(bvt.mean_ratio.high)
        assert bvt.mean_ms.low is not None
        assert bvt.mean_ms.low < 0.9 * (bvt.mean_ms.value or 0.0), "rounds differ"
        assert cell.arms["none"].mean_ratio.low is None, "it is its own base"
    assert set(result.summary) == set(ARMS) - {"none"}
    assert result.summary["dasec"].cells == len(result.cells)
    assert result.summary["dasec"].p99_ratio.value == pytest.approx(0.5)
    seeds = Counter(seed for *_, seed in runner.ran)
    assert sorted(seeds.values()) == [len(runner.ran) // 3] * 3


def test_a_run_without_one_without_control_in_its_round_is_not_compared(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"counts": (2,), "loads": (0.5,), "applications": ("ordered",)}
    changed["mixes"] = ("same",)
    out = tmp_path / "out"
    run(out, **changed)
    (out / "runs" / "ordered-2-0.5-none-2.json").unlink()
    result = run(out, InventedInstances(interrupt_at=0), minutes=0.0, **changed)
    assert result.cells[0].arms["none"].runs == 2
    assert result.cells[0].arms["dasec"].runs == 3
    assert result.cells[0].arms["dasec"].mean_ratio.value == pytest.approx(0.5)


def test_what_was_interrupted_goes_on_at_the_same_rates(tmp_path: Path) -> None:
    first, second = InventedInstances(interrupt_at=7), InventedInstances()
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(out, first, repeats=1)
    result = run(out, second, repeats=1)
    assert (first.measured, second.measured) == (list(BOTH), []), "costs are measured once"
    assert len(first.ran) + len(second.ran) == result.planned_runs
    assert result.costs == COSTS
    assert result == run(out, InventedInstances(interrupt_at=0), repeats=1)
    assert result == load(InstancesResult, out / RESULT_FILE)
    more = InventedInstances()
    run(out, more, repeats=1, counts=(2, 4, 6))
    assert {len(applications) for applications, *_ in more.ran} == {6}, "the others are there"


@pytest.mark.slow
def test_a_part_of_the_runs_has_a_result_and_a_page(tmp_path: Path) -> None:
    for finished in (1, 2, 5, 20):
        out = tmp_path / str(finished)
        with pytest.raises(KeyboardInterrupt):
            run(out, InventedInstances(interrupt_at=finished))
        result = run(out, InventedInstances(interrupt_at=0), minutes=0.0)
        assert result.done_runs == finished
        assert "<svg" in render_experiment_page(instances_page(result))


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "out", repeats=1)
    for changed in ({"seed": 2}, {"division": "group"}, {"cpus": 4}, {"measured_s": 1.0}):
        with pytest.raises(PlanError, match="with other settings"):
            run(tmp_path / "out", **changed)
    with pytest.raises(ReplicationError, match="No run is finished"):
        run(tmp_path / "other", minutes=0.0)


@pytest.mark.slow
def test_the_page_and_the_list_have_every_instance(tmp_path: Path) -> None:
    result = run(tmp_path / "out", repeats=2)
    page = render_experiment_page(instances_page(result))
    assert page.count("<svg") == 2 * 3 * 2, "mean and p99 of each mix and number"
    assert "Under dasec the mean latency is 0.50 times (source: 0.54)" in page
    assert "170 us to ordered" in page
    assert len(cells_table(result).rows) == len(result.cells) * len(ARMS)
    per_load = 3 * (2 + 4) * len(ARMS)
    assert len(instances_table(result).rows) == 2 * per_load
    rows = list(csv.DictReader((tmp_path / "out" / RUNS_FILE).read_text().splitlines()))
    assert len(rows) == 2 * 2 * per_load
    (one,) = [
        row for row in rows
        if (row["mix"], row["instances"], row["load"], row["arm"], row["round"], row["instance"])
        == ("mixed", "4", "0.95", "bvt", "2", "3")
    ]  # fmt: skip
    assert one["application"] == "ordered"
    assert float(one["p99_ms"]) == pytest.approx(10 * float(one["mean_ms"]), rel=1e-3)
    assert float(one["cpu_machine"]) == pytest.approx(0.96)


def test_the_command_shows_what_is_finished_and_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    base = InstancesRequest(out=out, counts=(6,), loads=(0.7,), measured_s=4.0, repeats=1)
    run_instances_experiment(base, opener=InventedInstances().opened)
    argv = ["experiment", "dasec", "--instances", "6", "--load", "0.7", "--seconds", "4"]
    argv += ["--out", str(out), "--minutes", "0"]
    assert main([*argv, "--repeats", "2"]) == 0
    shown = capsys.readouterr()
    assert "mean latency is 0.50 times (source: 0.54)" in shown.out
    assert f"{3 * len(ARMS)} of {2 * 3 * len(ARMS)} runs are finished" in shown.out + shown.err
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert main([*argv, "--applications", "classifier"]) != 0
    assert "of classifier cannot run side by side" in capsys.readouterr().err


class GroupOfOne:
    """A group with the processes that a test names."""

    def __init__(self, *pids: int) -> None:
        self.members = pids

    def pids(self, *, recursive: bool) -> tuple[int, ...]:
        assert recursive
        return self.members


def test_a_process_that_has_ended_keeps_its_time_in_its_group() -> None:
    burn = "import time; t = time.process_time\nwhile t() < 0.1: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        group = GroupOfOne(process.pid)
        time = GroupTime(cast(Cgroup, group))
        used_s = time.used_s()
        process.kill()
    assert used_s >= 0.05
    assert time.used_s() == used_s
    group.members = ()
    assert time.used_s() == used_s
