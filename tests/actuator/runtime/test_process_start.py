"""Starting the daemon's processes: options arrive whole, and bad ones are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stallward.actuator.errors import OptionsError
from stallward.actuator.guardian.restore_command import RestoreOptions
from stallward.actuator.ipc.options import (
    GuardianOptions,
    Inheritance,
    LoopOptions,
    Modules,
    ServiceOptions,
)
from stallward.actuator.journal.keeper_process import KeeperOptions
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.latency.config import (
    CollectorOptions,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.record.recorder import RecorderOptions
from stallward.actuator.runtime.process_start import (
    EXIT_OPTIONS,
    SINGLE_THREADED_MATHS,
    command_line,
    read_options,
)

ODD = Path("/a b/'\"$HOME\n\udcff é")
"""A path with everything that a shell, JSON or an encoding could stumble over."""
INHERITED = Inheritance(memory_fd=9, first_place=4, after_restart=True, unfinished=True)
PROMETHEUS = PrometheusLatency(url="http://127.0.0.1:1/m", metric='x{a="b"}', period_s=0.1)
STATSD = StatsdLatency(metric="x", listen="/run/x", tags=("a:b", "c:d"))


@pytest.mark.parametrize(
    "options",
    [
        GuardianOptions(config=ODD),
        GuardianOptions(config=ODD, owner_fd=7, owned_folder=ODD),
        LoopOptions(
            config_fd=3,
            guardian_fd=4,
            command_fd=5,
            restarts=0,
            daemon_start_s=0.1,
            inherited=INHERITED,
        ),
        LoopOptions(
            config_fd=3,
            guardian_fd=4,
            command_fd=5,
            record_fd=6,
            latency_fds=(7, -1),
            restarts=8,
            daemon_start_s=12345.678901234567,
            inherited=INHERITED,
        ),
        ServiceOptions(socket=ODD, command_fd=3, life_fd=4, silence_s=2.5, slo_ms=1e-3),
        ServiceOptions(
            socket=ODD,
            command_fd=3,
            life_fd=4,
            silence_s=2.5,
            latency_fds=(5,),
            latency_source="grpc",
            metrics="[::1]:9180",
            slo_ms=100.0,
            slots=("-a", "--b=c", "{}"),
        ),
        CollectorOptions(fd=3, life_fd=4, source=PROMETHEUS),
        CollectorOptions(fd=3, life_fd=4, source=STATSD),
        CollectorOptions(
            fd=3, life_fd=4, source=PrometheusLatency(port=9100, metric="x"), address_fd=5
        ),
        RecorderOptions(fd=3, path=ODD, max_bytes=1 << 40),
        KeeperOptions(fd=3, owner_pid=2, paths=Paths()),
        KeeperOptions(fd=3, owner_pid=2, paths=Paths(proc=ODD, cgroup=ODD, sys=ODD), journal=ODD),
        RestoreOptions(config=ODD),
        RestoreOptions(config=ODD, journal=ODD, paths=Paths(proc=ODD)),
    ],
    ids=lambda options: type(options).__name__,
)
def test_options_arrive_as_they_were_given(options: object) -> None:
    *start, module, text = command_line("some.module", options)
    arguments = [text]
    assert (*start, module) == (sys.executable, "-P", "-m", "some.module")
    assert arguments[0].isascii(), "no locale can change it"
    assert read_options(type(options), arguments) == options


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeOptions:
    number: int
    name: str = ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "0 arguments"),
        (["--number", "1"], "2 arguments"),
        (["--help"], "'--help' is not JSON"),
        (["["], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (["3"], "options is 3, not a table"),
        (["{}"], "options.number is missing"),
        (['{"number": "1"}'], "options.number is '1', not a whole number"),
        (['{"number": true}'], "options.number is True, not a whole number"),
        (['{"number": 1.5}'], "options.number is 1.5, not a whole number"),
        (['{"number": NaN}'], "options.number is nan, not a whole number"),
        (['{"number": 1, "nmae": "x"}'], "unknown key 'nmae'"),
        (['{"number": 1, "name": null}'], "options.name is None, not a string"),
    ],
)
def test_other_options_are_refused_with_the_reason(arguments: list[str], why: str) -> None:
    with pytest.raises(OptionsError) as caught:
        read_options(SomeOptions, arguments)
    assert why in caught.value.cause
    assert "stallward --help" in caught.value.next_step


def test_a_value_that_json_does_not_know_is_not_sent() -> None:
    options = ServiceOptions(
        socket=ODD, command_fd=3, life_fd=4, silence_s=float("inf"), slo_ms=1.0
    )
    with pytest.raises(ValueError, match="JSON"):
        command_line("some.module", options)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (Modules().guardian, "guardian"),
        (Modules().loop, "loop"),
        (Modules().service, "service"),
        (Modules().recorder, "recorder"),
        (Modules().collector, "collector"),
        (Modules().restorer, "restorer"),
        ("stallward.actuator.journal.keeper_process", "keeper"),
        ("stallward.actuator.guardian.restore_command", "restore"),
    ],
)
def test_every_process_says_what_is_wrong_with_its_options(module: str, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps({"zorn": 1})],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == EXIT_OPTIONS
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"stallward {name}: options has an unknown key 'zorn'.")


NEEDY = """
import os, sys
from stallward.actuator.runtime.process_start import SINGLE_THREADED_MATHS, require_environment
print(os.getpid(), *sys.argv[1:], flush=True)
require_environment(SINGLE_THREADED_MATHS, "needy")
print(os.read(int(sys.argv[1]), 10), *(os.environ[name] for name in SINGLE_THREADED_MATHS))
"""


@pytest.mark.parametrize("value", [None, "4", "1"])
def test_a_process_without_its_environment_starts_anew_with_it(
    tmp_path: Path, value: str | None
) -> None:
    program = tmp_path / "needy.py"
    program.write_text(NEEDY)
    kept = {key: text for key, text in os.environ.items() if key not in SINGLE_THREADED_MATHS}
    given = {} if value is None else dict.fromkeys(SINGLE_THREADED_MATHS, value)
    read, write = os.pipe()
    os.write(write, b"kept open")
    done = subprocess.run(
        [sys.executable, str(program), str(read), "two words"],
        env={**kept, **given},
        pass_fds=(read,),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    os.close(read)
    os.close(write)
    *starts, last = done.stdout.splitlines()
    assert len(starts) == (1 if value == "1" else 2)
    assert len(set(starts)) == 1, "the same process, with the same arguments"
    assert last == "b'kept open' 1 1 1"


@pytest.mark.parametrize(("value", "times"), [("4", 2), ("1", 1)])
def test_a_loop_started_by_hand_gets_its_environment(value: str, times: int) -> None:
    """It starts a second time, and numpy, which reads the environment, is imported only then."""
    given = dict.fromkeys(SINGLE_THREADED_MATHS, value)
    done = subprocess.run(
        [sys.executable, "-m", Modules().loop, "none"],
        env={**os.environ, **given, "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == EXIT_OPTIONS
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert imported.count("site") == times, "one for each start"
    assert imported.count("numpy") == 1
    assert "site" not in imported[imported.index("numpy") :]
