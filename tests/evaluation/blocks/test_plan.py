"""Plans are randomised, reproducible and resumable block by block."""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from example_results import NODE

from stallward.agent.errors import ControllerError
from stallward.evaluation.arms import REFERENCES, parse_arms
from stallward.evaluation.blocks.store import BlockStore, PlannedBlock, Settings, plan_blocks
from stallward.evaluation.errors import PlanError
from stallward.evaluation.results.serialise import save

SETTINGS = Settings(
    scenario="detector-anon",
    scenario_sha256="ab",
    mode="twin",
    arms=("none", "latd"),
    block_s=10.0,
    burn_in_s=2.0,
    seed=7,
)


def _finish(store: BlockStore, block: PlannedBlock) -> None:
    partial = store.open(block)
    partial.mkdir()
    save(partial / "run.json", {"schema": 1})
    store.commit(block, NODE)


def test_every_round_holds_every_condition_once_in_its_own_order() -> None:
    blocks = plan_blocks(parse_arms("none,latd,none#2"), 12, seed=3)
    rounds = [[b.condition for b in blocks if b.round == r] for r in range(1, 13)]
    for conditions in rounds:
        assert Counter(conditions) == Counter([*REFERENCES, "none", "latd", "none#2"])
    assert len({tuple(c) for c in rounds}) > 6
    firsts = {c[0] for c in rounds}
    assert len(firsts) > 2, "too few conditions run first"


def test_the_plan_is_a_function_of_the_seed_and_can_be_prolonged() -> None:
    arms = parse_arms("none,latd")
    short, long = plan_blocks(arms, 3, seed=3), plan_blocks(arms, 5, seed=3)
    assert long[: len(short)] == short
    assert plan_blocks(arms, 3, seed=4) != short


def test_blocks_of_a_round_share_the_seed_of_their_load() -> None:
    blocks = plan_blocks(parse_arms("none,latd"), 2, seed=3)
    assert len({b.seed for b in blocks if b.round == 1}) == 1
    assert len({b.seed for b in blocks}) == 2


@pytest.mark.parametrize("rounds", [0, -1])
def test_no_rounds_is_refused(rounds: int) -> None:
    with pytest.raises(PlanError, match="--blocks 3"):
        plan_blocks(parse_arms("none"), rounds, seed=1)


def test_an_interrupted_block_runs_again_and_a_finished_one_does_not(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "out", SETTINGS)
    first, second = plan_blocks(parse_arms("none"), 1, seed=7)[:2]
    _finish(store, first)
    partial = store.open(second)
    partial.mkdir()
    (partial / "run.json").write_text("{}")  # never committed
    again = BlockStore(tmp_path / "out", SETTINGS)
    assert again.done(first)
    assert not again.done(second)
    assert sorted(p.name for p in again.blocks.iterdir()) == [first.directory]


@pytest.mark.parametrize("damage", ["missing", "torn", "list"])
def test_a_block_without_a_valid_run_is_not_done(tmp_path: Path, damage: str) -> None:
    store = BlockStore(tmp_path / "out", SETTINGS)
    block = plan_blocks(parse_arms("none"), 1, seed=7)[0]
    _finish(store, block)
    run = store.path(block) / "run.json"
    if damage == "missing":
        run.unlink()
    else:
        run.write_text('{"schema": 1' if damage == "torn" else "[]")
    assert not store.done(block)


def test_a_comparison_without_blocks_leaves_no_plan_and_no_directory(tmp_path: Path) -> None:
    first = plan_blocks(parse_arms("none"), 1, seed=7)[0]
    store = BlockStore(tmp_path / "new" / "out", SETTINGS)
    store.open(first)
    store.forget_if_empty()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    BlockStore(tmp_path / "mine", SETTINGS).forget_if_empty()
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"], "it was there before"
    store = BlockStore(tmp_path / "mine", SETTINGS)
    _finish(store, first)
    store.forget_if_empty()
    assert (tmp_path / "mine" / "plan.json").exists()


def test_a_value_that_json_cannot_hold_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        save(tmp_path / "x.json", {"value": float("inf")})
    assert list(tmp_path.iterdir()) == []


def test_a_block_of_another_seed_is_not_done(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "out", SETTINGS)
    block = plan_blocks(parse_arms("none"), 1, seed=7)[0]
    _finish(store, block)
    assert not store.done(replace(block, seed=block.seed + 1))


@pytest.mark.parametrize(
    ("change", "word"),
    [({"seed": 8}, "seed"), ({"scenario": "x"}, "scenario"), ({"arms": ("none",)}, "arms")],
)
def test_a_directory_of_another_comparison_is_refused_and_untouched(
    tmp_path: Path, change: dict[str, object], word: str
) -> None:
    BlockStore(tmp_path / "out", SETTINGS)
    before = (tmp_path / "out" / "plan.json").read_text()
    with pytest.raises(PlanError, match=f"its {word} is"):
        BlockStore(tmp_path / "out", replace(SETTINGS, **change))  # type: ignore[arg-type]
    assert (tmp_path / "out" / "plan.json").read_text() == before


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(PlanError, match="holds no comparison"):
        BlockStore(tmp_path, SETTINGS)
    with pytest.raises(PlanError, match="is a file"):
        BlockStore(tmp_path / "precious.txt", SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["precious.txt"]


def test_a_plan_that_could_not_be_written_does_not_block_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            BlockStore(tmp_path, SETTINGS)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".plan.json.tmp").write_text("{")  # as after a kill
    BlockStore(tmp_path, SETTINGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocks", "plan.json"]


def test_a_block_is_on_the_disk_before_it_counts_as_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    store = BlockStore(tmp_path / "out", SETTINGS)
    monkeypatch.setattr("os.fsync", note)
    block = plan_blocks(parse_arms("none"), 1, seed=7)[0]
    partial = store.open(block)
    partial.mkdir()
    (partial / "ticks.parquet").write_bytes(b"x")
    store.commit(block, NODE)
    assert synced == ["ticks.parquet", ".block.json.tmp"]


def test_arms_with_arguments_and_repeats() -> None:
    arms = parse_arms("none, static:pause=1,limit=0.4, latd,none#2,onnx:path=/x/p.onnx")
    assert [a.label for a in arms] == [
        "none",
        "static:pause=1,limit=0.4",
        "latd",
        "none#2",
        "onnx:path=/x/p.onnx",
    ]
    paging_out, other = parse_arms("ws-deactivate:by=pageout,ws-deactivate")
    assert (paging_out.lifts_budgets, other.lifts_budgets) == (True, False)
    assert arms[3].spec == "none"
    assert arms[4].arguments == {"path": "/x/p.onnx"}
    assert [a.lifts_budgets for a in arms] == [False, False, True, False, False]
    assert [a.runs_policy for a in arms] == [False, False, False, False, True]


def test_only_arms_that_schedule_threads_have_the_consent_to() -> None:
    arms = parse_arms("none,partition,dasec,dasec:answers=share,bvt,onnx:path=/x/p.onnx")
    assert [a.moves_threads for a in arms] == [False, False, True, True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No arm"),
        ("none,none", "named twice"),
        ("nome", "no controller 'nome'"),
        ("onnx", "needs the file"),
        ("ppo:colour=red", "does not take 'colour'"),
        ("static:limit=0.4,limit=0.6", "'limit' twice"),
        ("ppo:path=a.onnx,path=b.onnx", "two files"),
        ("static#2:limit=0.4", "is not a number"),
        ("static:limit=0.4#2,pause=1", "is not a number"),
        ("none#", "is not a number"),
        ("onnx:path=/a#b/p.onnx", "is not a number"),
    ],
)
def test_wrong_arms_are_refused(text: str, message: str) -> None:
    with pytest.raises((PlanError, ControllerError), match=message):
        parse_arms(text)


@pytest.mark.parametrize("text", ["alone", "ample", "background"])
def test_arms_cannot_take_the_name_of_a_reference(text: str) -> None:
    arm = replace(parse_arms("none")[0], label=text)
    with pytest.raises(PlanError, match="every round has one"):
        plan_blocks([arm], 1, seed=1)
