"""Jobs that are started and ended one by one, for the tests of every executor."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import psutil

from stallward.training.errors import DatasetError, WorkerError
from stallward.training.parallel.executor import Executor, Job, Kind
from stallward.training.progress import Report


def _nap(seconds: float, report: Report) -> float:
    report(f"{os.getpid()}", 0.5)
    time.sleep(seconds)
    return seconds


def _die(_report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(_report: Report) -> None:
    raise DatasetError("This one cannot be done.", next_step="Do another.")


def check_one_by_one(executor: Executor) -> None:
    """Start jobs while others are in flight, end one, and be told what each comes to."""
    told: dict[int, tuple[Kind, object]] = {}
    pids: dict[int, int] = {}
    with executor.open() as session:

        def wait_for(number: int) -> None:
            while number not in told:
                for one, kind, value in session.wait():
                    if kind is Kind.PROGRESS:
                        pids[one] = int(value[0])
                    else:
                        told[one] = kind, value

        session.start(0, Job("a long nap", partial(_nap, 600.0)))
        session.start(1, Job("a nap", partial(_nap, 0.1)))
        wait_for(1)
        session.start(2, Job("a death", _die))
        wait_for(2)
        session.start(3, Job("a failure", _fail))
        wait_for(3)
        assert told[1] == (Kind.DONE, 0.1)
        assert told[2][0] is Kind.DIED
        assert isinstance(told[2][1], WorkerError)
        assert told[3][0] is Kind.FAILED
        assert isinstance(told[3][1], DatasetError)
        while 0 not in pids:
            pids |= {one: int(value[0]) for one, _, value in session.wait()}
        session.end(0)
        psutil.wait_procs([psutil.Process(pids[0])] if psutil.pid_exists(pids[0]) else [], 30.0)
        assert not psutil.pid_exists(pids[0])
        session.start(0, Job("another", partial(_nap, 600.0)))
        del pids[0]
        while 0 not in pids:
            pids |= {one: int(value[0]) for one, _, value in session.wait()}
    psutil.wait_procs([psutil.Process(pids[0])] if psutil.pid_exists(pids[0]) else [], 30.0)
    assert not psutil.pid_exists(pids[0]), "it was in flight at the end"
    assert set(told) == {1, 2, 3}
