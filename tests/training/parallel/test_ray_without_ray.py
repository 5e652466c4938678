"""What needs no Ray: addresses, versions and installations, and whether a head still answers."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from stallward.evaluation.cli import main
from stallward.evaluation.cli.cluster_options import with_ray_address
from stallward.training.errors import ClusterError, WorkerError
from stallward.training.parallel import ray_tasks as ray_lookout
from stallward.training.parallel import ray_worker
from stallward.training.parallel.executor import Job, Kind
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.parallel.ray_tasks import MOST_REFUSED, MOST_SILENT, Lookout
from stallward.training.parallel.ray_worker import Message, run_job
from stallward.training.parallel.versions import code_beside_the_core, difference, versions_here


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["train", "--ray"], ["train", "--ray="]),
        (["train", "--ray", "--seeds", "2"], ["train", "--ray=", "--seeds", "2"]),
        (["train", "--ray", "head:6379"], ["train", "--ray", "head:6379"]),
        (["train", "--ray=auto", "--ray"], ["train", "--ray=auto", "--ray="]),
        (["arms"], ["arms"]),
        ([], []),
    ],
)
def test_an_address_may_follow_the_option(given: list[str], expected: list[str]) -> None:
    assert with_ray_address(given) == expected


@pytest.mark.parametrize("command", ["train", "tune", "fit", "fidelity", "compare", "oracle"])
def test_where_ray_is_not_installed_the_extra_is_named(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = {"compare": ["detector-anon", "--twin"], "oracle": ["detector-anon"]}
    assert main([command, *arguments.get(command, []), "--ray", "local"]) == 2
    error = capsys.readouterr().err
    assert error == "stallward: ray is not installed. Run `pip install 'stallward[ray]'`.\n"
    assert list(tmp_path.iterdir()) == []


def test_an_address_where_nobody_answers_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterError, match=f"answers at 127.0.0.1:{port}.*ray status"):
        open_ray(f"127.0.0.1:{port}").__enter__()


@pytest.mark.parametrize("address", ["recordings", "head", "head:port", "10.0.0.1:123456", ":1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match=r"not the address of a Ray cluster.*HOST:PORT"):
        open_ray(address).__enter__()


def test_an_address_of_ray_client_is_refused() -> None:
    with pytest.raises(ClusterError, match="ray job submit"):
        open_ray("ray://head:10001").__enter__()


def test_a_live_comparison_is_not_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "detector-anon", "--live", "--ray"]) == 2
    assert "--twin" in capsys.readouterr().err
    assert main(["oracle", "detector-anon", "--look-ahead", "--ray"]) == 2
    assert "without --ray" in capsys.readouterr().err


def test_the_first_difference_of_versions_is_said() -> None:
    here = versions_here()
    assert difference(here, here) == ""
    assert {"Python", "numpy", "torch", "code of stallward"} <= here.keys()
    assert "missing" not in here.values()
    assert difference(here, {**here, "numpy": "1.0"}) == f"numpy 1.0 and not {here['numpy']}"
    assert "numba missing" in difference(here, {k: v for k, v in here.items() if k != "numba"})


def messages(job: Job[int], **changed: str) -> list[Message]:
    return list(
        run_job(job, {**versions_here(), **changed}, folder=Path.cwd(), files_are_shared=False)
    )


def test_a_worker_with_another_version_does_nothing() -> None:
    called: list[bool] = []
    job = Job("it", lambda _: called.append(True) or 1)  # type: ignore[func-returns-value]
    ((kind, (error, _)),) = messages(job, torch="0.1")
    assert kind is Kind.FAILED
    assert isinstance(error, WorkerError)
    assert "torch" in error.cause
    assert "0.1" in error.cause
    assert "same image" in error.next_step
    assert called == []


def test_a_worker_with_another_package_beside_the_core_does_nothing() -> None:
    def work(_: object) -> int:
        return 1

    work.__module__ = "stallward.research.screening"
    job = Job("it", work)
    ((kind, _),) = messages(job, **code_beside_the_core(work))
    assert kind is Kind.DONE
    ((kind, (error, _)),) = messages(job, **{"code of stallward.research": "other"})
    assert kind is Kind.FAILED
    assert "code of stallward.research" in str(error)


def test_a_worker_without_the_files_of_its_job_does_nothing(tmp_path: Path) -> None:
    called: list[bool] = []
    job = Job("the fit", lambda _: called.append(True) or 1, (tmp_path, tmp_path / "gone"))  # type: ignore[func-returns-value]
    ((kind, (error, _)),) = messages(job)
    assert kind is Kind.FAILED
    assert isinstance(error, WorkerError)
    assert f"has no {tmp_path / 'gone'}, which the fit reads" in error.cause
    assert called == []


def test_progress_is_told_while_a_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_worker, "_PROGRESS_EVERY_S", 0.01)
    told: list[Message] = []
    halfway = False

    def work(report: object) -> int:
        report("half", 0.5)  # type: ignore[operator]
        while not halfway:
            pass
        return 7

    job = Job("it", work)
    for message in run_job(job, versions_here(), folder=Path.cwd(), files_are_shared=True):
        told.append(message)
        halfway = True
    assert told == [(Kind.PROGRESS, ("half", 0.5)), (Kind.DONE, 7)]


def test_a_head_that_is_silent_for_long_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_lookout, "LOOK_EVERY_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        lookout = Lookout(address, lambda: True)
        for _ in range(2 * MOST_SILENT):
            lookout.check()
    for _ in range(MOST_SILENT - 1):
        lookout.check()
    with pytest.raises(ClusterError, match=f"cluster at {address} was lost.*same command goes on"):
        lookout.check()


def test_a_part_here_that_refuses_was_lost_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_lookout, "LOOK_EVERY_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        part = f"127.0.0.1:{gone.getsockname()[1]}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        lookout = Lookout(address, lambda: True, {"its part on this machine": part})
        for _ in range(MOST_REFUSED - 1):
            lookout.check()
        with pytest.raises(ClusterError, match=f"at {address} was lost: its part on this machine"):
            lookout.check()


def test_a_head_that_answers_again_was_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_lookout, "LOOK_EVERY_S", 0.0)
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    lookout = Lookout(f"127.0.0.1:{port}", lambda: True)
    for _ in range(3):
        server.close()
        for _ in range(MOST_SILENT - 1):
            lookout.check()
        server = socket.create_server(("127.0.0.1", port))
        lookout.check()
    server.close()


def test_nobody_is_asked_sooner_than_it_is_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        lookout = Lookout(f"127.0.0.1:{server.getsockname()[1]}", lambda: True)
    for _ in range(2 * MOST_SILENT):
        lookout.check()


def test_a_process_that_is_no_longer_connected_has_lost_its_cluster() -> None:
    lookout = Lookout("127.0.0.1:1", lambda: False)
    with pytest.raises(ClusterError, match="no longer connected"):
        lookout.check()
