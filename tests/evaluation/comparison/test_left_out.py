"""Arms that the node of a comparison cannot support are left out, with the reason."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from stallward.actuator.kernel.paths import Paths
from stallward.agent.controller import Need
from stallward.agent.registry import controllers
from stallward.env.errors import WorkloadError
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Scenario
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.comparison.compare import leave_out, run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import PlanError


def request(
    arms: str, mode: Literal["live", "twin"], out: Path = Path("unused")
) -> ComparisonRequest:
    return ComparisonRequest(
        scenario="detector-anon",
        arms=parse_arms(arms),
        mode=mode,
        rounds=1,
        block_s=4.0,
        burn_in_s=1.0,
        seed=1,
        out=out,
    )


def without_swap(scenario: Scenario) -> Scenario:
    return replace(scenario, sandbox=replace(scenario.sandbox, swap_bytes=0))


ARMS = "none,swap-assign,swap-assign:cpu=0,swap-assign:swap=0,swap-average,mat,ppo"


HEURISTICS = "ws-flush,ws-pressure,ws-deactivate,ws-promote"


def test_a_twin_and_an_old_kernel_leave_out_what_acts_on_single_file_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = load_scenario("detector-anon")
    kept, reasons = leave_out(request(f"none,{HEURISTICS}", "twin"), scenario)
    assert [arm.label for arm in kept.arms] == ["none"]
    assert "not which ones were used" in reasons["ws-pressure"]
    monkeypatch.setattr(
        "stallward.env.sandbox.lacks.lacks_of_levers",
        lambda _loaded, _proc: {Need.FILE_CACHE: "no cachestat"},
    )
    kept, reasons = leave_out(request(HEURISTICS, "live"), scenario)
    assert [arm.label for arm in kept.arms] == ["ws-deactivate"]
    assert all("file_cache (no cachestat)" in text for text in reasons.values())


def test_a_twin_and_an_old_kernel_leave_out_what_schedules_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = load_scenario("detector-anon")
    kept, reasons = leave_out(request("none,dasec,bvt", "twin"), scenario)
    assert [arm.label for arm in kept.arms] == ["none"]
    assert all("thread_slice (a twin has no threads)" in text for text in reasons.values())
    monkeypatch.setattr(
        "stallward.env.sandbox.lacks.why_no_thread_settings",
        lambda _proc: {Need.THREAD_SLICE: "Linux 6.12 does"},
    )
    asked = request("dasec,dasec:answers=layout+share,bvt", "live")
    kept, reasons = leave_out(asked, scenario)
    assert [arm.label for arm in kept.arms] == ["dasec:answers=layout+share"]
    assert set(reasons) == {"dasec", "bvt"}


def test_live_everything_runs_where_there_is_swap() -> None:
    asked = request(ARMS, "live")
    assert leave_out(asked, load_scenario("detector-anon")) == (asked, {})


PUBLISHED = "parties,heracles,senpai,tmo,sideloader,oomd,systemd-oomd,earlyoom,nohang"


def test_a_twin_has_what_the_published_rules_need_and_a_kernel_may_not(tmp_path: Path) -> None:
    scenario = load_scenario("detector-anon")
    asked = request(PUBLISHED, "twin")
    assert leave_out(asked, scenario) == (asked, {})
    without_stalls = Paths(proc=tmp_path)
    kept, reasons = leave_out(request(PUBLISHED, "live"), scenario, without_stalls)
    assert [arm.label for arm in kept.arms] == ["parties", "earlyoom"]
    assert "slot_stall (the kernel has no PSI)" in reasons["tmo"]
    assert "io_stall (the kernel has no PSI)" in reasons["heracles"]


STALL_RULES = "none,latd,latd-cgroup,latd-grow,psi-hold,pi,rule,ws-flush,partition,ppo"


def test_what_looks_at_stalls_is_left_out_without_them_and_never_on_a_twin(tmp_path: Path) -> None:
    scenario = load_scenario("detector-anon")
    kept, reasons = leave_out(request(STALL_RULES, "live"), scenario, Paths(proc=tmp_path))
    assert [arm.label for arm in kept.arms] == ["none", "rule", "partition", "ppo"]
    assert "application_stall (the kernel has no PSI)" in reasons["pi"]
    assert "memory_stall (the kernel has no PSI)" in reasons["latd-cgroup"]
    on_twin = "none,latd,latd-cgroup,latd-grow,psi-hold,pi,rule,partition,ppo"
    assert leave_out(request(on_twin, "twin"), scenario) == (request(on_twin, "twin"), {})


def test_what_sets_the_node_is_left_out_where_its_settings_are_read_only(tmp_path: Path) -> None:
    vm, pressure = tmp_path / "sys/vm", tmp_path / "pressure"
    for folder in (vm, pressure):
        folder.mkdir(parents=True)
    (pressure / "memory").touch()
    names = ("swappiness", "overcommit_memory", "dirty_background_ratio", "dirty_ratio")
    for name in names:
        (vm / name).write_text("0\n")
    arms, scenario = "none,latd,latd-cgroup,latd-grow", load_scenario("detector-anon")
    _, reasons = leave_out(request(arms, "live"), scenario, Paths(proc=tmp_path))
    assert reasons == {}, "without a swappiness of groups, that of the node stands in for it"
    (vm / "dirty_ratio").unlink()
    (vm / "dirty_ratio").mkdir()
    _, reasons = leave_out(request(arms, "live"), scenario, Paths(proc=tmp_path))
    assert set(reasons) == {"latd", "latd-cgroup", "latd-grow"}
    assert f"node_tuning ({vm / 'dirty_ratio'}: Is a directory)" in reasons["latd"]
    assert "only cgroup v1 has a swappiness per group" in reasons["latd-grow"]


def test_without_swap_those_stay_that_need_none() -> None:
    asked = request(ARMS, "live")
    kept, reasons = leave_out(asked, without_swap(load_scenario("detector-anon")))
    assert [arm.label for arm in kept.arms] == ["none", "swap-assign:swap=0", "mat", "ppo"]
    assert list(reasons) == ["swap-assign", "swap-assign:cpu=0", "swap-average"]
    assert all("swap (the scenario's sandbox has none)" in text for text in reasons.values())


def test_where_nothing_can_run_the_comparison_is_refused() -> None:
    with pytest.raises(PlanError, match=r"sandbox has none.*Choose other arms"):
        leave_out(request("swap-average", "live"), without_swap(load_scenario("detector-anon")))


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_on_a_twin_the_half_runs_that_it_models(tmp_path: Path) -> None:
    outcome = run_comparison(
        request("none,swap-assign,swap-assign:cpu=0", "twin", tmp_path / "out")
    )
    assert list(outcome.result.table.arms) == ["none", "swap-assign:cpu=0"]
    reason = outcome.result.method.left_out["swap-assign"]
    assert "cpu_weight (a twin divides the CPU evenly)" in reason
    assert "a twin divides the CPU evenly" in (tmp_path / "out" / "report.html").read_text()


def test_all_is_every_controller_that_can_be_compared() -> None:
    labels = [arm.label for arm in parse_arms("all,partition:margin_share=0.1")]
    assert labels[0] == "none"
    assert {"ppo", "partition", "static:pause=all", "latd-grow", "nohang"} <= set(labels)
    assert labels[-1] == "partition:margin_share=0.1"
    assert not {"storm", "excite", "onnx", "remote", "static"} & set(labels)
    shipped = {entry.name for entry in controllers()}
    assert shipped - {label.partition(":")[0] for label in labels} == {
        "excite", "onnx", "remote", "storm",
    }  # fmt: skip


PEER_ARMS = "none,peer:earlyoom,peer:nohang"


def test_a_twin_has_no_processes_for_a_peer() -> None:
    kept, reasons = leave_out(request(PEER_ARMS, "twin"), load_scenario("detector-anon"))
    assert [arm.label for arm in kept.arms] == ["none"]
    assert "a twin has no processes" in reasons["peer:earlyoom"]


def test_a_peer_that_is_not_installed_is_left_out_with_its_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario, asked = load_scenario("detector-anon"), request(PEER_ARMS, "live")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "lxcfs" else "/x")
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    kept, reasons = leave_out(asked, scenario)
    assert [arm.label for arm in kept.arms] == ["none"]
    assert "`apt-get install lxcfs`" in reasons["peer:nohang"]
    monkeypatch.setattr(shutil, "which", lambda _name: "/x")
    assert leave_out(asked, scenario) == (asked, {})


def test_a_peer_is_allowed_nothing_by_the_guard() -> None:
    (arm,) = parse_arms("peer:earlyoom#2")
    assert arm.peer is not None
    assert arm.peer.name == "earlyoom"
    assert not any((arm.lifts_budgets, arm.moves_threads, arm.runs_policy, arm.decides_remotely))


def test_an_unknown_peer_is_refused_and_the_peers_are_named() -> None:
    with pytest.raises(WorkloadError, match=r"no peer 'oomf'.*earlyoom, nohang, oomd"):
        parse_arms("none,peer:oomf")


def test_mpc_is_left_out_where_there_is_no_twin_to_plan_on() -> None:
    asked = request("none,mpc", "live")
    kept, reasons = leave_out(asked, replace(load_scenario("detector-anon"), name="new"))
    assert [arm.label for arm in kept.arms] == ["none"]
    assert "fitted twin" in reasons["mpc"]
    assert leave_out(asked, load_scenario("detector-anon"))[1] == {}
