"""Commands run beside each other, and all end with the one who started them."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/lanes.py"


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lanes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lanes", module)
    spec.loader.exec_module(module)
    return module


def test_they_run_at_once_and_the_worst_status_counts(
    lanes: ModuleType, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    met = tmp_path / "met"
    os.mkfifo(met)  # opening it waits for the other end
    words = [
        f"one=echo one >{met}; echo first; exit 3",
        f"two:3=cat {met}; nice; exit 1",
    ]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert lanes.main(words, tmp_path / "logs") == 3
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    printed = capfdbinary.readouterr().out.decode().splitlines()
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert printed[:3] == ["first", "one", str(min(mine + 3, 19))]
    assert [line.split(":")[0] for line in printed[3:]] == ["one", "two"]
    assert printed[3].endswith("exit status 3")
    assert (tmp_path / "logs/two.log").read_text().startswith("one\n")


def test_it_says_how_much_processor_time_each_used(
    lanes: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    lanes.main([f"busy={sys.executable} -Sc '{busy}'; true", "idle=sleep 0.1"], tmp_path)
    said = re.findall(r"(\w+): \d+ s, ([\d.]+) s of processor time", capfd.readouterr().out)
    used_s = {name: float(seconds) for name, seconds in said}
    assert used_s["busy"] >= 0.3
    assert used_s["idle"] <= 0.1


def test_a_lane_that_is_killed_is_no_success(lanes: ModuleType, tmp_path: Path) -> None:
    assert lanes.main(["one=true", "two=kill -9 $$"], tmp_path) == 137


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_of_them(number: signal.Signals, tmp_path: Path) -> None:
    words = [f"{name}=echo $$ >{tmp_path}/{name}; exec sleep 60" for name in ("one", "two")]
    code = (
        f"import runpy, sys; main = runpy.run_path({str(SCRIPT)!r})['main'];"
        f"from pathlib import Path; sys.exit(main(sys.argv[1:], Path({str(tmp_path)!r})))"
    )
    with subprocess.Popen([sys.executable, "-c", code, *words]) as process:
        deadline_s = time.monotonic() + 60.0
        while not all(_written(tmp_path / name) for name in ("one", "two")):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(60) != 0
    for name in ("one", "two"):
        pid = int((tmp_path / name).read_text())
        assert not Path(f"/proc/{pid}").exists()


def _written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")
