"""Loading a policy beside the ticks ends, whatever the file makes the loader do."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from policy_files import write_policy

from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.errors import DaemonError
from stallward.actuator.loop import policy_file, policy_loader
from stallward.actuator.loop.commands import policy_status
from stallward.actuator.loop.policy_file import find_policy_file
from stallward.actuator.loop.policy_loader import LoadResult, PolicyLoader, load
from stallward.actuator.policies import trial
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.policies.trial import TrialOptions, try_policy
from stallward.actuator.runtime.process_start import interpreter
from stallward.agent.controllers.partition import PartitionController
from stallward.agent.errors import PolicyError


class SlowLoad:
    """Stands in for loading: it ends when it is told to."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        self.scheduler = -1

    def __call__(self, _name: str, _places: PolicyConfig, ticket: int, **_: object) -> LoadResult:
        self.begun.set()
        assert self.end.wait(30)
        self.scheduler = os.sched_getscheduler(0)
        return LoadResult(ticket=ticket)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowLoad]:
    stand_in = SlowLoad()
    monkeypatch.setattr(policy_loader, "load", stand_in)
    yield stand_in
    stand_in.end.set()


def wait_for_result(loader: PolicyLoader, now_s: float) -> LoadResult:
    deadline_s = time.monotonic() + 10
    while (result := loader.collect(now_s)) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    return result


def runs(_path: Path) -> None:
    """The trial of a policy that runs; here any content is one."""


def test_a_load_that_takes_too_long_is_answered_and_given_up(slow: SlowLoad) -> None:
    loader = PolicyLoader(limit_s=20.0)
    loader.start("endless", 7, 100.0)
    assert slow.begun.wait(10)
    assert loader.collect(119.9) is None
    result = loader.collect(120.0)
    assert result is not None
    assert (result.ticket, result.controller, result.missing) == (7, None, False)
    assert "'endless' could not be loaded within 20 s" in str(result.error)
    assert loader.collect(121.0) is None, "it is answered once"
    with pytest.raises(DaemonError, match=r"'endless' is still being loaded, for 30 s.*Restart"):
        loader.start("other", 8, 130.0)
    (loading,) = (thread for thread in threading.enumerate() if thread.name == "policy")
    slow.end.set()
    loading.join(10.0)
    assert slow.scheduler == os.SCHED_OTHER, "what was given up is not preferred any more"
    assert loader.collect(140.0) is None, "its late result is nobody's"
    loader.start("other", 8, 140.0)
    assert wait_for_result(loader, 141.0).ticket == 8


def test_one_policy_is_loaded_at_a_time(slow: SlowLoad) -> None:
    loader = PolicyLoader()
    loader.start("first", 1, 0.0)
    with pytest.raises(DaemonError, match="Another policy is being loaded"):
        loader.start("second", 2, 1.0)
    slow.end.set()
    assert wait_for_result(loader, 2.0).ticket == 1


def test_a_pointer_in_place_of_a_policy_is_named_to_the_client(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n"
    )
    result = load("mine", PolicyConfig(dir=tmp_path))
    assert result.controller is None
    assert not result.missing
    assert "Git LFS pointer" in str(result.error)
    assert "git lfs pull" in str(result.error)


def test_a_pushed_policy_is_found_by_name_and_digest_before_others(tmp_path: Path) -> None:
    store, content = PolicyStore(tmp_path / "store"), b"pushed"
    sha256 = hashlib.sha256(content).hexdigest()
    store.append(sha256, 0, content)
    pushed = store.complete(sha256, "mine", runs)
    folder = tmp_path / "dir"
    folder.mkdir()
    (folder / "mine.onnx").write_bytes(b"other")
    (folder / "theirs.onnx").write_bytes(b"other")
    places = PolicyConfig(dir=folder, store=tmp_path / "store")
    for name in ("mine", sha256, sha256[:8]):
        assert find_policy_file(name, places) == store.file(pushed)
    assert find_policy_file("theirs", places) == folder / "theirs.onnx"
    assert find_policy_file("nobody", places) is None


def test_a_damaged_list_of_pushed_policies_hides_no_others(tmp_path: Path) -> None:
    (tmp_path / "policies.json").write_text("{")
    (tmp_path / "theirs.onnx").write_bytes(b"other")
    places = PolicyConfig(dir=tmp_path, store=tmp_path)
    assert find_policy_file("theirs", places) == tmp_path / "theirs.onnx"
    assert find_policy_file(str(tmp_path / "theirs.onnx"), places) == tmp_path / "theirs.onnx"
    assert find_policy_file("default", places) is not None


def test_a_pushed_policy_goes_by_the_name_that_it_was_loaded_by(tmp_path: Path) -> None:
    """Its file is named by its digest."""
    content = write_policy(tmp_path / "mine.onnx").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    store = PolicyStore(tmp_path / "store")
    store.append(sha256, 0, content)
    store.complete(sha256, "november", runs)
    places = PolicyConfig(store=tmp_path / "store")
    for name, shown in (("november", "november"), (str(tmp_path / "mine.onnx"), "mine")):
        result = load(name, places, trial=lambda _path: None)
        assert result.controller is not None, result.error
        assert policy_status(result.controller, result.name).name == shown


def test_a_bad_policy_says_which_good_one_its_name_hides(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path / "store")
    good = write_policy(tmp_path / "mine.onnx").read_bytes()
    digests = []
    for content in (good, b"\x12\x03bad"):
        digests.append(hashlib.sha256(content).hexdigest())
        store.append(digests[-1], 0, content)
        store.complete(digests[-1], "november", runs)
    places = PolicyConfig(store=tmp_path / "store")
    refused = load("november", places, trial=lambda _path: None)
    assert refused.controller is None
    assert f"The one that was pushed as november before it is {digests[0][:12]}" in str(
        refused.error
    )
    assert load(digests[0][:12], places, trial=lambda _path: None).controller is not None
    store.remove(digests[1])
    assert load("november", places, trial=lambda _path: None).controller is not None


def test_a_controller_is_made_by_its_specification() -> None:
    result = load("controller:partition:turn_s=7", PolicyConfig(), 3)
    assert result.error is None
    assert isinstance(result.controller, PartitionController)
    assert result.controller.thresholds.turn_s == 7.0
    status = policy_status(result.controller, result.name)
    assert (status.name, status.path) == ("partition:turn_s=7", "controller:partition:turn_s=7")
    assert status.sha256 == hashlib.sha256(b"partition:turn_s=7").hexdigest()
    again = load(status.path, PolicyConfig())
    assert again.controller is not None
    assert policy_status(again.controller, again.name) == status


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("controller:nobody", "There is no controller 'nobody'"),
        ("controller:partition:turn=7", "does not take 'turn=7'"),
        ("controller:", "There is no controller ''"),
    ],
)
def test_a_controller_that_cannot_be_made_is_said(name: str, message: str) -> None:
    result = load(name, PolicyConfig())
    assert result.controller is None
    assert message in str(result.error)


def test_a_policy_is_tried_in_a_process_of_its_own_and_only_then_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file makes its loader do must not be done in the loop first."""
    path = write_policy(tmp_path / "mine.onnx")
    tried: list[Path] = []
    monkeypatch.setattr(policy_file, "try_policy", lambda options: tried.append(options.path))
    for _ in range(2):
        assert load(str(path), PolicyConfig()).controller is not None
    assert tried == [path], "once"
    write_policy(path, bias=1.0)

    def refused(_options: TrialOptions) -> None:
        raise PolicyError("It takes too much.")

    monkeypatch.setattr(policy_file, "try_policy", refused)
    monkeypatch.setattr(policy_file, "OnnxController", lambda _path: pytest.fail("it is loaded"))
    assert str(load(str(path), PolicyConfig()).error) == "It takes too much."


@pytest.mark.slow
def test_a_trial_ends_at_its_bounds_of_memory_and_time(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "mine.onnx")
    try_policy(TrialOptions(path=path))
    with pytest.raises(PolicyError, match="0 MiB"):
        try_policy(TrialOptions(path=path, most_bytes=1 << 16))
    with pytest.raises(DaemonError, match=r"took more than 0\.05 s"):
        try_policy(TrialOptions(path=path), limit_s=0.05)
    (tmp_path / "none.onnx").write_bytes(b"")
    with pytest.raises(PolicyError, match=r"is empty\. Copy or export it again"):
        try_policy(TrialOptions(path=tmp_path / "none.onnx"))


ENDLESS = """
from pathlib import Path
from stallward.actuator.policies import trial
from stallward.agent.controllers import onnx

def endless(_path):
    while True:
        pass

onnx.OnnxController = endless
trial.MOST_CPU_S = 0.0
trial.main(trial.TrialOptions(path=Path("mine.onnx")))
"""
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def in_place_of_the_trial(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(trial, "command_line", lambda *_: [*interpreter(), "-c", code])


def test_a_trial_that_the_kernel_kills_for_memory_says_nothing_of_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_the_trial(monkeypatch, KILLED)
    store, content = PolicyStore(tmp_path), b"a policy"
    sha256 = hashlib.sha256(content).hexdigest()
    store.append(sha256, 0, content)
    with pytest.raises(DaemonError, match=r"could not be tried now.* Try again when more memory"):
        store.complete(sha256, "mine", lambda path: try_policy(TrialOptions(path=path)))
    assert store.received_bytes(sha256) == len(content), "it need not be sent again"


WITHOUT_RUNTIME = """
import sys
from pathlib import Path
from stallward.actuator.policies import trial

sys.modules["onnxruntime"] = None
sys.exit(trial.main(trial.TrialOptions(path=Path("mine.onnx"))))
"""


def test_a_node_without_onnx_runtime_says_so_of_a_pushed_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_the_trial(monkeypatch, WITHOUT_RUNTIME)
    with pytest.raises(DaemonError, match=r"not installed\. Install stallward\[node\]"):
        try_policy(TrialOptions(path=tmp_path / "mine.onnx"))


@pytest.mark.slow
def test_a_policy_that_takes_too_much_processor_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_the_trial(monkeypatch, ENDLESS)
    with pytest.raises(PolicyError, match=rf"2 s to load.*\(status -{signal.SIGXCPU}\)"):
        try_policy(TrialOptions(path=tmp_path / "mine.onnx"))
