"""The digest of the code by which a worker tells whether it computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import stallward
from stallward.training.parallel.versions import CORE, code_beside_the_core, code_digest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A namespace with two packages in folders of their own."""
    for name in ("agent", "env"):
        module = tmp_path / name / "stallward" / name / "module.py"
        module.parent.mkdir(parents=True)
        module.write_text(f"NAME = {name!r}\n")
    portions = [str(tmp_path / name / "stallward") for name in ("env", "agent")]
    monkeypatch.setattr(stallward, "__path__", portions)
    code_digest.cache_clear()
    yield tmp_path
    code_digest.cache_clear()


def test_it_changes_with_the_code_and_not_with_its_place(
    namespace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = code_digest(CORE)
    together = namespace / "site-packages/stallward"
    together.mkdir(parents=True)
    for name in ("agent", "env"):
        (namespace / name / "stallward" / name).rename(together / name)
    monkeypatch.setattr(stallward, "__path__", [str(together)])
    code_digest.cache_clear()
    assert code_digest(CORE) == apart
    (together / "env/module.py").write_text("NAME = 'other'\n")
    code_digest.cache_clear()
    assert code_digest(CORE) != apart


def test_a_package_beside_the_core_does_not_count(
    namespace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = code_digest(CORE)
    lens = namespace / "packages/lens/stallward/lens"
    lens.mkdir(parents=True)
    (lens / "module.py").write_text("NAME = 'lens'\n")
    monkeypatch.setattr(stallward, "__path__", [*stallward.__path__, str(lens.parent)])
    code_digest.cache_clear()
    assert code_digest(CORE) == without


def test_a_package_beside_the_core_counts_for_its_own_work(
    namespace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = namespace / "packages/lens/stallward/lens"
    lens.mkdir(parents=True)
    (lens / "module.py").write_text("NAME = 'lens'\n")
    monkeypatch.setattr(stallward, "__path__", [*stallward.__path__, str(lens.parent)])

    def work() -> None: ...

    def digests() -> dict[str, str]:
        code_digest.cache_clear()
        return code_beside_the_core(partial(partial(work)))

    assert digests() == {}, "it belongs to this test"
    work.__module__ = "stallward.env.module"
    assert digests() == {}
    work.__module__ = "stallward.lens.module"
    before = digests()
    assert before.keys() == {"code of stallward.lens"}
    (lens / "module.py").write_text("NAME = 'other'\n")
    assert digests() != before


def test_the_whole_core_counts() -> None:
    assert set(CORE) == {path.name for path in ROOT.glob("*/stallward/*") if path.is_dir()}
