"""The digest of the code by which a worker tells whether it computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import stallward
from stallward.training.parallel.versions import CORE, code_digest

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
    apart = code_digest()
    together = namespace / "site-packages/stallward"
    together.mkdir(parents=True)
    for name in ("agent", "env"):
        (namespace / name / "stallward" / name).rename(together / name)
    monkeypatch.setattr(stallward, "__path__", [str(together)])
    code_digest.cache_clear()
    assert code_digest() == apart
    (together / "env/module.py").write_text("NAME = 'other'\n")
    code_digest.cache_clear()
    assert code_digest() != apart


def test_a_package_beside_the_core_does_not_count(
    namespace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = code_digest()
    lens = namespace / "packages/lens/stallward/lens"
    lens.mkdir(parents=True)
    (lens / "module.py").write_text("NAME = 'lens'\n")
    monkeypatch.setattr(stallward, "__path__", [*stallward.__path__, str(lens.parent)])
    code_digest.cache_clear()
    assert code_digest() == without


def test_the_whole_core_counts() -> None:
    assert set(CORE) == {path.name for path in ROOT.glob("*/stallward/*") if path.is_dir()}
