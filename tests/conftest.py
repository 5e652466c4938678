"""Settings of all tests: their threads, the rules of the suite, and which tests are skipped."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from budgets import Budgets
from reruns import Reruns
from selection import Selection
from since_check import SinceCheck
from skips import Skips, in_ci

# Before numpy and torch are imported. Tests run side by side: a pool of threads in each process
# would only spin, which doubles the processor time of the suite.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# A shell that starts the tests in the background has them ignore interrupts, and a program that a
# test interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _why_not_live() -> str:
    """Why tests with real pressure cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "not root"
    if not Path("/proc/pressure/memory").exists():
        return "no PSI in this kernel (boot with psi=1)"
    v1 = Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists()
    v2 = Path("/sys/fs/cgroup/cgroup.controllers")
    if not v1 and not (v2.exists() and "memory" in v2.read_text().split()):
        return "no memory controller"
    return ""


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage() -> Iterator[None]:
    """Collect what a module has left, so that a file which stays open is an error of that module.

    Whatever is still used then is not looked at again, which halves the time that this takes.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let what was not looked at be collected at the end."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which tests are left out."""
    parser.addoption(
        "--libraries", action="store_true", help="leave out tests that call no library themselves"
    )
    parser.addoption(
        "--since-check", action="store_true", help="leave out what no change since then reaches"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add the rules of the suite, and make the profiles of hypothesis before it looks for them.

    A busy machine draws inputs slowly and is late with each, which is no fault of what is tested.
    In the machine of vm tests nothing is drawn, and importing hypothesis takes seconds.
    """
    rules = config.pluginmanager
    if "STALLWARD_VM" in os.environ:
        rules.register(Reruns(None))
        return
    rules.register(Reruns())
    libraries = config.getoption("--libraries")
    if not libraries:
        # `make test` runs other lanes beside these tests; `make check` runs them alone.
        rules.register(Budgets(slack=float(os.environ.get("STALLWARD_TEST_SLACK", "1"))))
    rules.register(Selection(config.rootpath, libraries=libraries))
    if config.getoption("--since-check"):
        rules.register(SinceCheck(config.rootpath, notes=not hasattr(config, "workerinput")))
    if in_ci():
        rules.register(Skips())
    from hypothesis import HealthCheck, settings  # noqa: PLC0415

    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", patient)
    settings.register_profile("quick", patient, max_examples=25)
    if not config.getoption("--hypothesis-profile", default=""):
        settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip live and vm tests where the machine does not allow them, and say why.

    Live tests make real pressure on a machine that others use too, and the emulated machine of
    vm tests stalls for seconds with it: one that fails is repeated, twice at most. The summary
    lists it under RERUN, after what it saw when it failed.

    Files with slow tests and linters come first, so that no long one is left to one process at the
    end.
    """
    why = {"live": _why_not_live()}
    if "STALLWARD_VM" not in os.environ:  # set by tests/vm/machines/run.sh
        why["vm"] = "runs inside a machine of `make test-vm`"
    for item in items:
        for marker, reason in why.items():
            if reason and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"{marker} test: {reason}"))
        if any(item.get_closest_marker(marker) is not None for marker in ("live", "vm")):
            item.add_marker(pytest.mark.flaky(reruns=2))
    long = ("slow", "linter")
    slow = Counter(item.path for item in items if any(map(item.get_closest_marker, long)))
    items.sort(key=lambda item: -slow[item.path])
