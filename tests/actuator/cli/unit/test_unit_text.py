"""The systemd unit: filled in, every setting with its reason, narrow, and taken by systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lever_page import lever_rows
from unit_settings import CONFIG, CONFIGS, HERE, PROGRAM, config_of, settings

from stallward.actuator.cli.unit.text import UNIT_NAME, Installation, unit_text
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError
from stallward.actuator.kernel.cgroups import Kind
from stallward.actuator.levers.cgroup.vm_settings import WRITTEN_FILES

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_it_is_filled_in_for_this_installation(config: DaemonConfig) -> None:
    text = unit_text(HERE, config)
    assert re.findall(r"@[A-Z_]+@", text) == []
    assert f"ExecStart={PROGRAM} serve --config {CONFIG}\n" in text
    assert f"ExecStopPost=-{PROGRAM} restore --config {CONFIG}\n" in text


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_setting_of_the_service_has_its_reason_above_it(config: DaemonConfig) -> None:
    text = unit_text(HERE, config)
    lines = text.partition("[Service]\n")[2].partition("[Install]")[0]
    explained = False
    for line in filter(None, lines.splitlines()):
        if line.startswith("#"):
            explained = True
            continue
        assert explained, f"{line} has no reason"


def test_no_reason_speaks_of_what_the_daemon_does_not_have() -> None:
    for config in CONFIGS.values():
        assert "TLS" not in unit_text(HERE, config)


@pytest.mark.reaches("docs/reference/levers.md")
def test_there_is_room_for_the_threads_of_many_slots() -> None:
    for_slots = 16 * sum(lever.threaded for lever in lever_rows())
    others = 64  # gRPC's, the processes' own, and what restores
    (room,) = settings(config_of())["TasksMax"]
    assert for_slots + others <= int(room)


def test_of_the_kernels_settings_only_those_that_are_written_are_writable() -> None:
    found = settings(config_of())
    assert found["ProtectKernelTunables"] == ["yes"]
    assert " ".join(f"-/proc/sys/vm/{n}" for n in WRITTEN_FILES) in found["ReadWritePaths"]
    assert sum("/proc" in value for value in found["ReadWritePaths"]) == 1
    assert set(WRITTEN_FILES) == {
        *("swappiness", "overcommit_memory", "dirty_ratio", "dirty_bytes"),
        *("dirty_background_ratio", "dirty_background_bytes"),
    }


def test_what_ptrace_would_allow_is_filtered() -> None:
    found = settings(config_of(node='page_cache = "ebpf"'))
    assert "CAP_SYS_PTRACE" in found["CapabilityBoundingSet"][0]
    denied = {
        word for line in found["SystemCallFilter"] if line[0] == "~" for word in line.split()
    }
    wanted = {"process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "@debug"}
    assert wanted <= {word.removeprefix("~") for word in denied}


def test_what_is_locked_and_spared_has_a_bound() -> None:
    found = settings(config_of())
    assert (found["OOMScoreAdjust"], found["LimitMEMLOCK"]) == (["-900"], ["infinity"])
    assert found["MemoryMax"] == ["512M"]
    assert found["OOMPolicy"] == ["continue"], "the guardian handles a killed process"


@pytest.mark.parametrize(("mode", "widened"), [("off", False), ("auto", True), ("ebpf", True)])
def test_ebpf_has_its_rights_only_where_it_is_wanted(mode: str, *, widened: bool) -> None:
    found = settings(config_of(node=f'page_cache = "{mode}"'))
    capabilities = " ".join(found["CapabilityBoundingSet"])
    # The cgroup of a count is found by its number, which takes both of these.
    assert ("CAP_DAC_READ_SEARCH" in capabilities) == widened
    assert ("bpf open_by_handle_at" in found["SystemCallFilter"]) == widened
    assert {"CAP_BPF", "CAP_PERFMON"} <= set(capabilities.split()) or not widened


def test_at_boot_it_waits_for_the_services_that_it_protects_and_for_no_others() -> None:
    after = settings(config_of())["After"]
    assert "app.service" in after
    assert "hog.service" not in after, "a job that ends by itself counts as started at its end"
    config = config_of(zone="/")
    one = replace(config.applications[0], group=r"user.slice/web\x2da.service/worker")
    assert r"web\x2da.service" in settings(replace(config, protected=one))["After"]


def test_of_all_groups_only_a_zone_that_stays_is_writable() -> None:
    found = settings(config_of(zone="work.slice/work-edge.slice"))
    assert found["ProtectControlGroups"] == ["yes"]
    assert "/sys/fs/cgroup/work.slice/work-edge.slice" in found["ReadWritePaths"]
    assert "slices.target" in found["After"]
    assert found["Requires"] == ["work-edge.slice"]
    assert "work-edge.slice" in found["After"]
    assert found["WantedBy"] == ["multi-user.target work-edge.slice"]


@pytest.mark.parametrize(
    ("zone", "kind"),
    [
        ("/", "v2"),  # the whole machine
        ("edge", "v2"),  # made by hand: it may be removed and made anew
        ("edge.slice", "hybrid"),  # systemd makes it in some hierarchies only
        ("edge.slice", "none"),
        ("work-edge.slice", "v2"),  # not where systemd would put it
        ("edge.slice/run.scope", "v2"),
    ],
)
def test_where_the_zone_may_be_made_anew_all_groups_are_writable(zone: str, kind: Kind) -> None:
    text = unit_text(replace(HERE, kind=kind), config_of(zone=zone))
    assert "\nProtectControlGroups=no\n" in text
    assert "Requires=" not in text
    assert text.endswith("\nWantedBy=multi-user.target\n")


@pytest.mark.parametrize("path", ["stallward", "/opt/a b/stallward", "/opt/%h", '/opt/"x"'])
def test_a_path_that_a_unit_would_misread_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be named in a systemd unit"):
        unit_text(Installation(program=Path(path), config=CONFIG), config_of())


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(
        ["systemd-analyze", *arguments], check=False, capture_output=True, text=True
    )


@needs_systemd
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_systemd_takes_it(tmp_path: Path, config: DaemonConfig) -> None:
    unit = tmp_path / UNIT_NAME
    text = unit_text(HERE, config)
    unit.write_text(text)
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, UNIT_NAME in done.stderr) == (0, False), done.stderr
    unit.write_text(text.replace("TasksMax=", "TasksMax=many\nNope="))
    done = analyze("verify", "--man=no", str(unit))
    assert UNIT_NAME in done.stderr, "the check finds mistakes"


def exposure(folder: Path, config: DaemonConfig) -> tuple[float, set[str]]:
    """What systemd counts, and the settings for which it does."""
    unit = folder / UNIT_NAME
    unit.write_text(unit_text(HERE, config))
    done = analyze("security", "--offline=true", "--no-pager", str(unit))
    overall = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert overall is not None, done.stderr
    return float(overall[1]), {line.split()[1] for line in done.stdout.splitlines() if "✗" in line}


@needs_systemd
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_systemd_counts_little_exposure(tmp_path: Path, config: DaemonConfig) -> None:
    assert exposure(tmp_path, config)[0] < 2.5


@needs_systemd
def test_a_port_costs_the_network_and_nothing_else(tmp_path: Path) -> None:
    """Systemd could open the port and keep the network away, but gRPC takes no open socket."""
    without, lines = exposure(tmp_path, CONFIGS["sockets"])
    with_port, more = exposure(tmp_path, CONFIGS["remote"])
    assert without < 2.0
    assert more - lines == {
        "PrivateNetwork=",
        "RestrictAddressFamilies=~AF_(INET|INET6)",
        "IPAddressDeny=",
    }
    assert with_port < 2.5
