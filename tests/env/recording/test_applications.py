"""Recordings of several applications give back each application's samples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.record.frames import FRAMES_NAME, FrameWriter
from stallward.actuator.record.reading import read_ticks
from stallward.actuator.record.tick_record import NamedDecision, TickRecord, TickTimings
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.applications import joint_latency
from stallward.agent.controller import Decision
from stallward.agent.desired import RELEASED
from stallward.agent.latency_histogram import LatencyHistogram
from stallward.agent.sample import (
    UNBOUND,
    ApplicationSample,
    GroupSample,
    LatencySample,
    PsiTotals,
    Sample,
)
from stallward.agent.testing import make_sample
from stallward.env.errors import RecordingError
from stallward.env.recording.applications import application_names, application_samples
from stallward.env.recording.recording import (
    Recording,
    Requests,
    Units,
    load_recording,
    write_recording,
)
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.twin.estimate.from_recordings import twin_of_recordings
from stallward.evaluation.cli import MISTAKE, main
from stallward.evaluation.measures.block_measures import measure_recording
from stallward.research.off_policy.replay_env import load_runs

MIB = 1 << 20
RECORDINGS = Path(__file__).parents[3] / "recordings"
NAMES = ("web.front", "web", "web_latency")
"""Each begins like another."""
RUN = RunInfo(
    scenario="shop",
    condition="together",
    arm="none",
    seed=1,
    start_s=100.0,
    end_s=104.0,
    burn_in_s=0.0,
    sandbox_bytes=600 * MIB,
    slo_ms=20.0,
    node=NodeInfo(kind="v2", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30),
    slot_names=("hog0", "hog1"),
    other_applications=NAMES[1:],
)


def applications(second: int) -> tuple[ApplicationSample, ...]:
    """Three applications: the first as usual, the next without requests, then an absent pod."""
    first, second_name, third = NAMES
    group = GroupSample(
        name="shop.slice/front",
        psi=PsiTotals(memory_some_us=1_000_001 + second, cpu_full_us=0),
        memory_usage_bytes=80 * MIB + second,
        swap_bytes=4096 * second,
        refault_file_pages=7,
        frozen=False,
        turn_read_s=99.987654321,
    )
    latency = LatencySample(
        window_s=1.0,
        completed=3 + second,
        completed_total=2**40 + second,
        p95_ms=9.87654321 + second,
        max_ms=0.1,
        last_completion_age_s=0.0123456789,
    )
    asked = LatencySample(completed=0, completed_total=12)
    return (
        ApplicationSample(name=first, slo_ms=11.1, group=group, latency=latency),
        ApplicationSample(
            name=second_name, slo_ms=0.3, group=replace(group, frozen=None), latency=asked
        ),
        ApplicationSample(
            name=third, slo_ms=50.0, group=GroupSample(name=f"{UNBOUND}{third}"), latency=None
        ),
    )


def sample(second: int, several: tuple[ApplicationSample, ...]) -> Sample:
    counted = tuple(
        replace(one, latency=replace(one.latency, new_requests=LatencyHistogram.of({400: 2})))
        if one.latency is not None
        else one
        for one in several
    )
    return replace(
        make_sample(),
        time_s=100.0 + second,
        latency=joint_latency(several, 20.0),
        applications=counted,
    )


def recorded(
    folder: Path, samples: list[tuple[ApplicationSample, ...]], run: RunInfo = RUN
) -> Path:
    """A recording of what a daemon's recorder wrote."""
    writer = FrameWriter(folder / FRAMES_NAME)
    for number, several in enumerate(samples):
        record = TickRecord(
            sequence=number,
            time_s=100.0 + number,
            wall_time_s=1.7e9 + number,
            sample=sample(number, several),
            observation=(),
            decision=NamedDecision(
                controller="none", decision=Decision(desired=RELEASED, reason="")
            ),
            granted=RELEASED,
            timings=TickTimings(),
        )
        writer.append(TICK_RECORD.to_wire(record).SerializeToString())
    writer.close()
    times_s = 100.0 + np.linspace(0.0, 3.9, 40)
    requests = Requests(
        scheduled_s=times_s,
        start_s=times_s,
        end_s=times_s + 0.01,
        ok=np.ones(times_s.size, dtype=bool),
    )
    write_recording(
        folder / "made",
        run=run,
        ticks=read_ticks(folder / FRAMES_NAME),
        requests=requests,
        others=dict.fromkeys(run.other_applications, requests),
        units=Units.empty(),
    )
    return folder / "made"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return recorded(tmp_path, [applications(second) for second in range(4)])


def loaded(path: Path) -> Recording:
    return load_recording(path, several=True)


def test_the_samples_of_each_application_come_back_the_same(shop: Path) -> None:
    ticks = loaded(shop).ticks
    assert application_names(ticks) == NAMES
    assert application_samples(ticks) == tuple(applications(second) for second in range(4))


def test_the_columns_say_who_met_its_target(shop: Path) -> None:
    ticks = loaded(shop).ticks
    assert ticks["application:web.front:met"].tolist() == [True, True, False, False]
    assert "application:web:met" not in ticks, "without requests nothing is known"
    assert ticks["application:web.front:memory_usage_bytes"][1] == 80 * MIB + 1
    assert ticks["application:web:psi_memory_some_us"][3] == 1_000_004
    assert loaded(shop).tick("latency_p95_ms")[0] == pytest.approx(
        9.87654321 / 11.1 * 20.0, rel=1e-6
    ), "beside them is what the daemon decided by"


def test_an_application_that_comes_later_is_absent_before(tmp_path: Path) -> None:
    samples = [applications(0)[:1], applications(1)[:2], applications(2)[1:]]
    ticks = loaded(recorded(tmp_path, samples)).ticks
    assert application_samples(ticks) == tuple(samples)


def test_a_recording_of_one_application_has_no_such_columns(tmp_path: Path) -> None:
    run = replace(RUN, other_applications=())
    recording = load_recording(recorded(tmp_path, [(), ()], run))
    assert not [title for title in recording.ticks if title.startswith("application")]
    assert application_samples(recording.ticks) == ((), ())


def test_older_recordings_of_several_have_none_of_their_samples(shop: Path) -> None:
    ticks = {
        title: column
        for title, column in loaded(shop).ticks.items()
        if not title.startswith("application:")
    }
    assert application_samples(ticks) == ((),) * 4


def test_a_column_of_another_kind_is_refused_by_name(shop: Path) -> None:
    ticks = dict(loaded(shop).ticks)
    ticks["application:web:swap_bytes"] = ticks["application:web:group"]
    with pytest.raises(RecordingError, match="application:web:swap_bytes' holds something else"):
        application_samples(ticks)


def several_of(path: Path, out: Path) -> Path:
    """The copy of a recording that says that it is of two applications."""
    shutil.copytree(path, out)
    run = json.loads((out / "run.json").read_text())
    # A daemon's recording has no scenario, which would be held out.
    changed = {"other_applications": ["web"], "scenario": "mine", "scenario_parameters": {}}
    (out / "run.json").write_text(json.dumps({**run, **changed}))
    shutil.copy(out / "requests.parquet", out / "requests-web.parquet")
    return out


OPENED: list[Callable[[Path], object]] = [
    load_recording,
    lambda path: twin_of_recordings([path]),
    lambda path: load_runs([path]),
]


@pytest.mark.parametrize("opened", OPENED, ids=["load", "twin", "replay"])
def test_who_can_use_one_application_refuses_several(
    opened: Callable[[Path], object], tmp_path: Path
) -> None:
    path = several_of(RECORDINGS / "detector-phases-none-s1", tmp_path / "two")
    with pytest.raises(RecordingError, match="several protected applications") as caught:
        opened(path)
    assert "Leave it out" in caught.value.next_step
    assert measure_recording(path).others.keys() == {"web"}, "a comparison uses them"


COMMANDS = [
    "fit {path} --out {out}",
    "ope {path} --arms none --twin-file detector-anon",
    "explain default {path} --at 10",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_several_applications_and_say_what_to_do(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = several_of(RECORDINGS / "detector-anon-excite-s1", tmp_path / "two")
    assert main(command.format(path=path, out=tmp_path / "twins").split()) == MISTAKE
    said = " ".join(capsys.readouterr().err.split())
    assert "several protected applications (web beside the first)" in said
    assert "Leave it out" in said
