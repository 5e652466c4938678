"""The rules of the suite: what a test reaches, what it may take, and when it may be skipped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import full_run
import pytest
from budgets import Budgets, Clock, used_cpu_s, waited_s
from reach import Reach, is_reached
from reruns import repeated_before
from selection import FULL_RUN, changed_files, why_everything
from skips import ExpectedSkips

pytest_plugins = ["pytester"]


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with two tests, whose last full run is its only commit."""
    monkeypatch.delenv("ALL", raising=False)
    for name, text in {
        "agent/stallward/agent/__init__.py": "",
        "agent/stallward/agent/rules.py": "from stallward.agent import limits\n",
        "agent/stallward/agent/limits.py": "",
        "actuator/stallward/actuator/__init__.py": "",
        "actuator/stallward/actuator/loop/__init__.py": "",
        "actuator/stallward/actuator/loop/__main__.py": "",
        "actuator/stallward/actuator/loop/start.py": 'WORDS = ("-m", "stallward.actuator.loop")\n',
        "models/stallward/models/__init__.py": "",
        "models/stallward/models/default.py": "",
        "models/stallward/models/default.onnx": "weights",
        "evaluation/stallward/evaluation/__init__.py": "",
        "evaluation/stallward/evaluation/plugins.py": 'GROUP = "stallward.commands"\n',
        "packages/lens/pyproject.toml": (
            '[project.entry-points."stallward.commands"]\n'
            'trace = "stallward.lens.trace:COMMAND"\n'
            '[project.entry-points."stallward.controllers"]\n'
            'other = "stallward.lens.other:ENTRY"\n'
        ),
        "packages/lens/stallward/lens/__init__.py": "",
        "packages/lens/stallward/lens/trace.py": "",
        "packages/lens/stallward/lens/other.py": "",
        "agent/stallward/agent/plugin.py": 'GROUP = "stallward.controllers"\n',
        "docs/page.md": "",
        "recordings/a/ticks": "",
        "tests/around_the_loop.py": "from stallward.actuator.loop.start import WORDS\n",
        "tests/test_rules.py": "from stallward.agent.rules import rule\n",
        "tests/test_loop.py": "import pytest\nfrom around_the_loop import Loop\n",
        "tests/test_commands.py": "PLUGINS = 'stallward.evaluation.plugins'\n",
        "tests/test_controllers.py": "PLUGINS = 'stallward.agent.plugin'\n",
        "tests/test_models.py": "from stallward.models import (\n    default,\n)\n",
        "tests/conftest.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "all")
    (tmp_path / FULL_RUN).write_text(git(tmp_path, "rev-parse", "HEAD") + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "test", "reached"),
    [
        ("agent/stallward/agent/limits.py", "test_rules.py", True),
        ("agent/stallward/agent/limits.py", "test_loop.py", False),
        ("actuator/stallward/actuator/loop/__main__.py", "test_loop.py", True),
        ("tests/around_the_loop.py", "test_loop.py", True),
        ("tests/test_loop.py", "test_loop.py", True),
        ("models/stallward/models/default.onnx", "test_models.py", True),
        ("models/stallward/models/default.onnx", "test_rules.py", False),
        ("packages/lens/stallward/lens/trace.py", "test_commands.py", True),
        ("packages/lens/pyproject.toml", "test_commands.py", True),
        ("packages/lens/stallward/lens/other.py", "test_commands.py", False),
        ("packages/lens/stallward/lens/other.py", "test_controllers.py", True),
        ("packages/lens/stallward/lens/trace.py", "test_controllers.py", False),
        ("packages/lens/stallward/lens/trace.py", "test_rules.py", False),
        ("docs/page.md", "test_rules.py", False),
    ],
)
def test_a_test_reaches_what_it_imports_and_starts_and_the_data_beside_that(
    tree: Path, changed: str, test: str, reached: bool
) -> None:
    assert is_reached([changed], Reach(tree).files(tree / "tests" / test), tree) is reached


def test_a_folder_that_is_named_stands_for_all_that_it_holds(tree: Path) -> None:
    files = Reach(tree).files(tree / "tests/test_rules.py", tree / "recordings")
    assert is_reached(["recordings/a/ticks"], files, tree)
    assert is_reached(["recordings/gone/ticks"], files, tree)


def test_a_deleted_module_was_reached(tree: Path) -> None:
    (tree / "agent/stallward/agent/limits.py").unlink()
    files = Reach(tree).files(tree / "tests/test_rules.py")
    assert is_reached(changed_files(tree), files, tree)


def test_only_what_calls_a_library_itself_touches_one(tree: Path) -> None:
    test = tree / "tests/test_rules.py"
    assert not Reach(tree).touches_a_library(test)
    (tree / "agent/stallward/agent/limits.py").write_text("import numpy as np\n")
    assert not Reach(tree).touches_a_library(test), "another module does"
    (tree / "agent/stallward/agent/rules.py").write_text("import numpy as np\n")
    assert Reach(tree).touches_a_library(test)
    assert not Reach(tree).touches_a_library(tree / "tests/test_loop.py"), "pytest is none"


def test_the_change_decides_unless_it_is_too_large_or_unknown(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_everything(tree) == ""
    assert changed_files(tree) == ()
    (tree / "docs/page.md").write_text("new")
    (tree / "docs/other.md").write_text("not in git yet")
    assert set(changed_files(tree)) == {"docs/page.md", "docs/other.md"}
    assert why_everything(tree) == ""
    (tree / "tests/conftest.py").write_text("import os\n")
    assert why_everything(tree) == "tests/conftest.py has changed"
    git(tree, "checkout", "-q", "tests/conftest.py")
    monkeypatch.setattr("selection.MOST_COMMITS", 2)
    for number in range(3):
        assert why_everything(tree) == ""
        git(tree, "commit", "-q", "--allow-empty", "-m", str(number))
    assert why_everything(tree) == "the last full run is 3 commits back"
    (tree / FULL_RUN).write_text("0" * 40)
    assert "is not to be found here" in why_everything(tree)
    (tree / FULL_RUN).unlink()
    assert "is not to be found here" in why_everything(tree)
    monkeypatch.setenv("ALL", "1")
    assert why_everything(tree) == "ALL=1"


RULES = """
from pathlib import Path
import {module}
def pytest_configure(config):
    config.addinivalue_line("markers", "slow: x")
    config.addinivalue_line("markers", "reaches(*paths): x")
    config.pluginmanager.register({made})
"""


@pytest.mark.slow
def test_what_nothing_reaches_is_left_out_unless_it_is_named(
    tree: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = f"selection.Selection(Path({str(tree)!r}))"
    (tree / "tests/conftest.py").write_text(RULES.format(module="selection", made=made))
    for name, marks in (("loop", ""), ("rules", '"recordings/"')):
        (tree / f"tests/test_{name}.py").write_text(
            f"import pytest\npytestmark = pytest.mark.reaches({marks})\ndef test_it(): pass\n"
        )
    (tree / "tests/test_models.py").write_text("def test_it(): pass\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "marks")
    (tree / FULL_RUN).write_text(git(tree, "rev-parse", "HEAD") + "\n")
    tests = tree / "tests"
    pytester.runpytest_inprocess(str(tests)).assert_outcomes(passed=1, deselected=2)
    (tree / "recordings/a/ticks").write_text("more")
    pytester.runpytest_inprocess(str(tests)).assert_outcomes(passed=2, deselected=1)
    named = pytester.runpytest_inprocess(f"{tests}/test_loop.py::test_it")
    named.assert_outcomes(passed=1)
    monkeypatch.setenv("ALL", "1")
    pytester.runpytest_inprocess(str(tests)).assert_outcomes(passed=3)


def test_a_check_collects_what_a_change_since_the_last_one_that_passed_can_reach(
    tree: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = f"since_check.SinceCheck(Path({str(tree)!r}), notes=True)"
    (tree / "tests/conftest.py").write_text(RULES.format(module="since_check", made=made))
    (tree / ".gitignore").write_text("build/\n__pycache__/\n.pytest_cache/\n")
    (tree / "tests/around_the_loop.py").write_text("WORDS = 'stallward.actuator.loop.start'\n")
    for name, text in {
        "test_rules.py": "'stallward.agent.rules'\ndef test_it(): pass\n",
        "test_loop.py": "import around_the_loop\ndef test_it(): pass\n",
        "test_models.py": "def test_it(): pass\n",
        "project/test_pages.py": "def test_it(): pass\n",
    }.items():
        (tree / "tests" / name).parent.mkdir(exist_ok=True)
        (tree / "tests" / name).write_text(text)
    tests = str(tree / "tests")
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=4)
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=1)  # of the project itself
    limits = tree / "agent/stallward/agent/limits.py"
    limits.write_text("LEAST = 1\n")
    (tree / "tests/test_rules.py").write_text("'stallward.agent.rules'\ndef test_it(): assert 0\n")
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=1, failed=1)
    (tree / "tests/test_rules.py").write_text("'stallward.agent.rules'\ndef test_it(): pass\n")
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=2)  # it had not passed yet
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=1)
    (tree / "pyproject.toml").write_text("")
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=4)
    monkeypatch.setenv("ALL", "1")
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=4)


def test_waiting_is_neither_computing_nor_queueing_for_a_processor() -> None:
    begin = Clock(wall_s=1.0, cpu_s=1.0, children_cpu_s=0.0, queued_s=0.0)
    end = Clock(wall_s=4.0, cpu_s=1.4, children_cpu_s=0.2, queued_s=1.0)
    assert used_cpu_s(begin, end) == pytest.approx(0.6)
    assert waited_s(begin, end) == pytest.approx(3.0 - 0.4 - 1.0 - 3 * 0.2)
    what_is_over = Budgets().what_is_over
    assert what_is_over(0.5, 1.0) == ""
    assert what_is_over(0.6, 0.0).startswith("0.60 s of processor time")
    assert what_is_over(0.6, 0.0, slower=1.5) == ""
    assert what_is_over(0.0, 1.2, slower=1.5).startswith("1.20 s of waiting")


def test_a_plain_test_over_its_budget_fails_and_others_may_take_longer(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        RULES.format(module="budgets", made="budgets.Budgets(cpu_s=0.02, waiting_s=0.02)")
    )
    pytester.makepyfile(
        """
        import time
        import pytest
        def compute():
            end_s = time.process_time() + 0.4
            while time.process_time() < end_s: pass
        def test_quick(): pass
        def test_computes(): compute()
        def test_waits(): time.sleep(0.05)
        @pytest.mark.slow
        def test_slow(): time.sleep(0.05)
        calls = []
        def test_busy_once():
            calls.append(1)
            time.sleep(0.05 if len(calls) == 1 else 0.0)
        def test_fails(): assert calls == []
        """
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        ["*OverBudgetError: A plain test took * of processor time*", "*seconds by folder*"]
    )


def test_in_continuous_integration_a_skip_that_nobody_expects_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pytester.path / "expected.txt"
    expected.write_text("# why\n*test_here.py::test_one: no swap\n*test_gone*: could not import\n")
    monkeypatch.setattr("skips.EXPECTED", expected)
    pytester.makeconftest(RULES.format(module="skips", made="skips.Skips()"))
    pytester.makepyfile(
        test_here="""
        import pytest
        def test_one(): pytest.skip("no swap file")
        def test_two(): pytest.skip("no swap file")
        @pytest.mark.skip(reason="no disk")
        def test_one_more(): pass
        @pytest.mark.xfail
        def test_known(): assert False
        """,
        test_gone="import pytest\npytest.importorskip('nowhere')\n",
    )
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(skipped=2, failed=1, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(["*test_two was skipped: no swap file"])
    monkeypatch.setattr("skips.EXPECTED", pytester.path / "none.txt")
    (pytester.path / "none.txt").write_text("")
    pytester.runpytest_inprocess("test_gone.py").assert_outcomes(errors=1)


def test_a_line_of_expected_skips_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'tests/x\.py' is not 'PATTERN: REASON'"):
        ExpectedSkips.read("tests/x.py")


def test_a_repeated_test_sees_fixtures_of_its_module_made_anew_and_is_written_down(
    pytester: pytest.Pytester,
) -> None:
    written = pytester.path / "reruns.txt"
    made = f"reruns.Reruns(Path({str(written)!r}))"
    pytester.makeconftest(RULES.format(module="reruns", made=made))
    pytester.makepyfile(
        test_pressure="""
        import pytest
        made, ended = [], []
        @pytest.fixture(scope="session")
        def machine():
            made.append("machine")
        @pytest.fixture(scope="module")
        def ran(machine):
            made.append("ran")
            yield len(made)
            ended.append("ran")
        @pytest.mark.flaky(reruns=2)
        def test_it(ran): assert ran == 3, "the first run was late"
        @pytest.mark.flaky(reruns=2)
        def test_the_same(ran):
            assert (ran, made, ended) == (3, ["machine", "ran", "ran"], ["ran"])
        """
    )
    result = pytester.runpytest_inprocess()
    assert result.parseoutcomes() == {"passed": 2, "rerun": 1}
    line = written.read_text()
    assert line.endswith(" test_pressure.py::test_it\n")
    result.stdout.fnmatch_lines(["*the first run was late*"])
    result.stdout.no_fnmatch_line("*repeated in more than one run*")
    earlier = "2026-01-01T00:00 test_pressure.py::test_it\n"
    written.write_text(earlier)
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(
        ["*repeated in more than one run*", "test_pressure.py::test_it (2 times)"]
    )


def test_a_test_is_named_when_two_runs_repeated_it() -> None:
    one, again = "2026-11-29T10:00 tests/a.py::test_x", "2026-11-30T10:00 tests/a.py::test_x"
    other = "2026-11-30T10:00 tests/b.py::test_y"
    assert repeated_before(f"# comment\n{one}\n{one}\n{other}\n") == []
    assert repeated_before(f"{one}\n{other}\n{again}\n") == ["tests/a.py::test_x (2 times)"]


def test_the_commit_of_a_full_run_is_noted_if_it_has_what_was_tested(tree: Path) -> None:
    git(tree, "commit", "-q", "--allow-empty", "-m", "later")
    (tree / "docs/page.md").write_text("not committed")
    before = (tree / FULL_RUN).read_text()
    assert full_run.main(tree) == 1
    assert (tree / FULL_RUN).read_text() == before
    git(tree, "checkout", "-q", "docs/page.md")
    assert full_run.main(tree) == 0
    assert (tree / FULL_RUN).read_text().strip() == git(tree, "rev-parse", "HEAD") != before
