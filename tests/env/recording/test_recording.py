"""Recordings are written as a whole or not at all, are small, and are refused if broken."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stallward.env.errors import RecordingError
from stallward.env.recording.recording import Requests, Units, load_recording, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo, load_run
from stallward.env.recording.tables import read_table, write_table
from stallward.proto.v1 import stallward_pb2 as pb

RUN = RunInfo(
    scenario="detector-anon",
    condition="together",
    arm="none",
    seed=3,
    start_s=100.0,
    end_s=175.0,
    burn_in_s=5.0,
    sandbox_bytes=600 << 20,
    slo_ms=20.0,
    node=NodeInfo(kind="hybrid", kernel="6.18", cpu_count=2, memory_total_bytes=8 << 30),
    slot_names=("hog0", "hog1"),
)


def tick(k: int, rng: np.random.Generator) -> pb.TickRecord:
    record = pb.TickRecord(sequence=k, time_s=100.0 + 0.1 * k, mode=pb.MODE_ACTIVE)
    for group in (
        record.sample.zone,
        record.sample.protected,
        record.sample.slots.add(),
        record.sample.slots.add(),
    ):
        group.psi.memory_some_us = int(9000 * k + rng.integers(0, 9000))
        group.psi.io_some_us = int(5000 * k + rng.integers(0, 5000))
        group.memory_usage_bytes = int(rng.integers(1, 150_000)) * 4096
        group.anon_bytes = int(rng.integers(1, 150_000)) * 4096
        group.file_bytes = int(rng.integers(1, 150_000)) * 4096
        group.swap_bytes = int(rng.integers(1, 150_000)) * 4096
        group.refault_anon_pages = int(1000 * k + rng.integers(0, 1000))
        group.cpu_usage_us = int(90_000 * k + rng.integers(0, 9000))
    for i in range(2):
        state = record.sample.slot_states.add()
        state.paused = (k // 7) % 2 == i
        slot = record.granted.slots.add()
        slot.paused = state.paused
        if k % 3 == 0:
            slot.limit_bytes = 50 << 20
    record.decision.action.extend([1, 0, 0, 2, 0, 0, 0, 0, 1])
    record.decision.propensity = 0.25
    record.sample.profile = record.granted.tuning.name = "flush"
    record.granted.tuning.protected_swappiness = 0
    record.granted.protected_low_bytes = 90 << 20
    record.granted.protected_willneed = True
    record.applied.add(lever="pause:hog0", value="1", ok=True, took_ms=0.2)
    return record


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that no test changes."""
    rng = np.random.default_rng(0)
    scheduled_s = 100.0 + np.cumsum(rng.exponential(1e-3, 60_000))
    start_s = scheduled_s + rng.exponential(1e-4, 60_000)
    requests = Requests(
        scheduled_s=scheduled_s,
        start_s=start_s,
        end_s=start_s + rng.lognormal(-8, 0.7, 60_000),
        ok=rng.random(60_000) > 0.01,
    )
    units = Units(
        slot=np.repeat(np.arange(2, dtype=np.int32), 750),
        time_s=np.tile(100.0 + 0.1 * np.arange(750), 2),
        units=np.tile(3.0 * np.arange(750.0), 2),
    )
    path = tmp_path_factory.mktemp("recorded") / "one"
    write_recording(
        path, run=RUN, ticks=[tick(k, rng) for k in range(750)], requests=requests, units=units
    )
    return path


@pytest.fixture
def recorded(written: Path, tmp_path: Path) -> Path:
    """The recording, to be damaged or added to."""
    return shutil.copytree(written, tmp_path / "one")


def test_a_recording_comes_back_as_it_was_written(recorded: Path) -> None:
    recording = load_recording(recorded)
    assert recording.run == RUN
    assert len(recording.ticks["time_s"]) == 750
    assert recording.tick("slot0_state_paused")[7:14].tolist() == [0.0] * 7
    assert np.isnan(recording.tick("zone_oom_kills")).all(), "absent is NaN, not zero"
    assert recording.actions["granted_slot1_limit_bytes"][0] == 50 << 20
    assert np.isnan(recording.actions["granted_slot1_limit_bytes"][1])
    assert recording.actions["propensity"][5] == 0.25
    assert recording.actions["granted_profile"][5] == "flush"
    assert recording.actions["granted_protected_swappiness"][5] == 0
    assert recording.actions["granted_protected_low_bytes"][5] == 90 << 20
    assert recording.actions["granted_protected_willneed"][5]
    assert "granted_swappiness" not in recording.actions, "it was never set"
    assert json.loads(recording.actions["applied"][5])[0][:3] == ["pause:hog0", "1", True]
    rng = np.random.default_rng(0)
    scheduled_s = 100.0 + np.cumsum(rng.exponential(1e-3, 60_000))
    np.testing.assert_allclose(recording.requests.scheduled_s, scheduled_s, atol=1e-6)
    assert recording.requests.sojourn_ms.min() > 0.0
    assert recording.units.rate_per_s(1, 110.0, 130.0) == pytest.approx(30.0)
    assert recording.units.rate_per_s(3, 110.0, 130.0) is None


def test_the_requests_of_further_applications_come_back(tmp_path: Path) -> None:
    times_s = np.array([101.0, 102.0])

    def requests(took_s: float) -> Requests:
        ok = np.array([True, False])
        return Requests(scheduled_s=times_s, start_s=times_s, end_s=times_s + took_s, ok=ok)

    others = {"web": requests(0.25), "store-2": requests(0.5)}
    run = replace(RUN, other_applications=tuple(others))
    write_recording(
        tmp_path / "x",
        run=run,
        ticks=[tick(0, np.random.default_rng(0))],
        requests=requests(0.125),
        others=others,
        units=Units.empty(),
    )
    recording = load_recording(tmp_path / "x", several=True)
    assert recording.run == run
    assert list(recording.others) == ["web", "store-2"]
    assert recording.requests.sojourn_ms.tolist() == pytest.approx([125.0] * 2)
    assert recording.others["web"].sojourn_ms.tolist() == pytest.approx([250.0] * 2)
    assert recording.others["store-2"].ok.tolist() == [True, False]
    (tmp_path / "x" / "requests-web.parquet").unlink()
    with pytest.raises(RecordingError, match=r"requests-web\.parquet"):
        load_recording(tmp_path / "x", several=True)


def test_a_further_application_cannot_name_another_file(recorded: Path) -> None:
    text = json.loads((recorded / "run.json").read_text())
    text["other_applications"] = ["../../secret"]
    (recorded / "run.json").write_text(json.dumps(text))
    with pytest.raises(RecordingError, match="no name of an application"):
        load_recording(recorded)


def test_a_minute_of_a_fast_server_stays_small(recorded: Path) -> None:
    size = sum(file.stat().st_size for file in recorded.iterdir())
    assert size < 400_000, size


def test_the_writer_refuses_to_overwrite_and_leaves_nothing(recorded: Path) -> None:
    with pytest.raises(RecordingError, match="exists"):
        write_recording(
            recorded, run=RUN, ticks=[], requests=Requests.empty(), units=Units.empty()
        )
    blocked = recorded / "run.json" / "two"
    with pytest.raises(RecordingError, match="could not be written"):
        write_recording(blocked, run=RUN, ticks=[], requests=Requests.empty(), units=Units.empty())
    assert [p.name for p in recorded.parent.iterdir()] == ["one"]


def test_a_recording_without_ticks_can_be_opened(tmp_path: Path) -> None:
    run = replace(RUN, condition="alone")
    write_recording(
        tmp_path / "r", run=run, ticks=[], requests=Requests.empty(), units=Units.empty()
    )
    assert len(load_recording(tmp_path / "r").requests.ok) == 0


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 1\n"


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("run.json", None, "no run.json"),
        ("run.json", b'{"schema": 1, "scen', "cannot be read"),
        ("run.json", b"\xff\xfe", "cannot be read"),
        ("run.json", b"[1]", "not a recording's"),
        ("run.json", '{"schema": 1}'.encode("utf-16"), "UTF-16 text"),
        ("run.json", _POINTER, "Git LFS pointer.*git lfs pull"),
        ("ticks.parquet", _POINTER, "Git LFS pointer.*git lfs pull"),
        ("requests.parquet", b"<html>Sign in</html>", "HTML page"),
        ("run.json", b'{"schema": 99, "scenario": "x"}', "schema 99"),
        ("run.json", b'{"schema": 1, "scenario": "x"}', "lacks a field"),
        ("ticks.parquet", None, "missing"),
        ("ticks.parquet", b"PAR1 not really", "damaged or not Parquet"),
        ("requests.parquet", b"", "damaged or not Parquet"),
    ],
)
def test_broken_files_are_refused_with_a_reason(
    recorded: Path, name: str, damage: bytes | None, message: str
) -> None:
    file = recorded / name
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    with pytest.raises(RecordingError, match=message):
        load_recording(recorded)


def test_a_run_json_that_an_editor_gave_a_byte_order_mark_is_read(recorded: Path) -> None:
    file = recorded / "run.json"
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert load_recording(recorded).run == load_run(recorded)


def test_truncated_and_foreign_parquet_are_refused(recorded: Path) -> None:
    file = recorded / "ticks.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordingError, match="truncated"):
        load_recording(recorded)
    pq.write_table(pa.table({"x": [1]}), file)
    with pytest.raises(RecordingError, match="no column 'sequence'"):
        load_recording(recorded)


def test_a_flipped_bit_is_refused_and_files_without_checksums_are_read(recorded: Path) -> None:
    file = recorded / "requests.parquet"
    whole = file.read_bytes()
    column = pq.read_metadata(file).row_group(0).column(2)
    assert column.path_in_schema == "sojourn_us"
    end = column.data_page_offset + column.total_compressed_size
    for at in range(end - 20, end):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(RecordingError, match=r"requests\.parquet is truncated, damaged"):
            load_recording(recorded)
    file.write_bytes(whole)
    sojourn_ms = load_recording(recorded).requests.sojourn_ms
    pq.write_table(pq.read_table(file), file)
    assert np.array_equal(load_recording(recorded).requests.sojourn_ms, sojourn_ms)


def test_floors_belong_to_slots(recorded: Path) -> None:
    file = recorded / "run.json"
    run = json.loads(file.read_text())
    names = len(run["slot_names"])
    for floors in ([1 << 20] * names, []):
        file.write_text(json.dumps(run | {"slot_floors_bytes": floors}))
        assert load_run(recorded).slot_floors_bytes == tuple(floors)
    file.write_text(json.dumps(run | {"slot_floors_bytes": [1 << 20] * (names + 1)}))
    with pytest.raises(RecordingError, match="floor of each of its slots"):
        load_run(recorded)


def test_a_missing_directory_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="not a recording"):
        load_run(tmp_path / "nowhere")


def test_times_of_another_type_are_refused(recorded: Path) -> None:
    """One flipped bit in a schema turns each time into two whole numbers."""
    file = recorded / "ticks.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("time_us")
    whole = pa.chunked_array([pa.array(range(len(table)))])
    pq.write_table(table.set_column(at, "time_s", whole), file)  # version 1: floating-point
    with pytest.raises(RecordingError, match="no numbers in its column 'time_s'"):
        load_recording(recorded)
    texts = pa.chunked_array([pa.array(["x"] * len(table))])
    pq.write_table(table.set_column(at, "time_us", texts), file)
    with pytest.raises(RecordingError, match=r"no(t Parquet| numbers)"):
        load_recording(recorded)


def test_times_and_timings_come_back_to_the_microsecond(recorded: Path) -> None:
    file = recorded / "ticks.parquet"
    kept = pq.read_table(file)
    assert {"time_us", "wall_time_us", "timing_sense_us"} <= set(kept.column_names)
    ticks = load_recording(recorded).ticks
    np.testing.assert_array_equal(ticks["time_s"], kept["time_us"].to_numpy() * 1e-6)
    assert ticks["time_s"].dtype == np.float64
    assert "timing_sense_ms" in ticks
    assert "timing_sense_us" not in ticks


def test_recordings_of_the_first_version_are_read_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "ticks.parquet"
    older = {"time_s": [1.25, 1.35], "timing_sense_ms": [0.5, None], "n": [1, 2]}
    pq.write_table(pa.table(older), file)
    columns = read_table(file, ("time_s",), ticks=True)
    assert columns["time_s"].tolist() == [1.25, 1.35]
    assert columns["timing_sense_ms"][0] == 0.5


def test_sizes_of_whole_pages_are_counted_in_them(tmp_path: Path) -> None:
    file = tmp_path / "ticks.parquet"
    pages = pa.array([8192, None, 4096 << 30], pa.int64())
    odd = pa.array([8192, 1, 2], pa.int64())
    absent = pa.array([None] * 3, pa.int64())
    given = {"time_s": pa.array([1.0, 2.0, 3.0]), "a_bytes": pages, "b_bytes": odd}
    write_table(file, {**given, "c_bytes": absent})
    assert {"a_4kib", "b_bytes", "c_bytes"} <= set(pq.read_table(file).column_names)
    columns = read_table(file, ("time_s",), ticks=True)
    np.testing.assert_array_equal(columns["a_bytes"], [8192, np.nan, 4096 << 30])
    assert columns["b_bytes"].tolist() == [8192, 1, 2]


def test_absent_timings_stay_absent(tmp_path: Path) -> None:
    file = tmp_path / "ticks.parquet"
    timings = pa.array([0.1234, None, 3.0], pa.float32())
    write_table(file, {"time_s": pa.array([1.0, 2.0, 3.0]), "timing_sense_ms": timings})
    columns = read_table(file, ("time_s",), ticks=True)
    assert columns["time_s"].tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_allclose(columns["timing_sense_ms"], [0.123, np.nan, 3.0])


def test_a_log_of_answers_that_ends_early_has_requests_without_one() -> None:
    scheduled = 100.0 + 0.1 * np.arange(100, dtype=np.float64)
    logged = Requests(
        scheduled_s=scheduled,
        start_s=scheduled,
        end_s=scheduled + 0.01,
        ok=np.ones(100, dtype=bool),
    )
    whole = logged.with_unanswered(end_s=110.0, waited_until_s=115.0)
    assert len(whole.scheduled_s) == 100, "the last one came in time"
    cut = logged.where(scheduled < 105.0).with_unanswered(end_s=110.0, waited_until_s=115.0)
    np.testing.assert_allclose(cut.scheduled_s, scheduled, atol=1e-6)
    assert cut.ok.sum() == 50
    assert cut.sojourn_ms[-1] == pytest.approx(5100.0, rel=0.01)
    few = logged.where(scheduled < 101.0)
    assert few.with_unanswered(end_s=110.0, waited_until_s=115.0) is few, "no pace is known"


def test_a_tick_counts_for_as_long_as_it_is_the_latest(recorded: Path) -> None:
    """A daemon reads ten times a second under pressure, and twice a second when it is calm."""
    ticks = {"time_s": np.array([100.0, 100.1, 100.2, 100.7]), "a": np.arange(4.0)}
    recording = replace(load_recording(recorded), ticks=ticks)
    assert recording.held_s(100.15, 101.0) == pytest.approx([0.0, 0.05, 0.5, 0.3])
    assert recording.held_s(90.0, 95.0).sum() == 0.0
    at = recording.tick_at("a", np.array([99.0, 100.1, 100.6, 102.0]))
    assert at.tolist() == [0.0, 1.0, 2.0, 3.0]
