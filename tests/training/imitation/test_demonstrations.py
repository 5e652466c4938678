"""Demonstrations are kept for a training that is resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stallward.training.imitation.demonstrations import DEMONSTRATIONS_FILE, Demonstrations


def test_demonstrations_load_unchanged_and_only_for_the_same_recipe(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    demonstrations = Demonstrations(
        observations=rng.normal(size=(5, 3)).astype(np.float32),
        actions=rng.integers(3, size=(5, 2)),
        prices=rng.normal(size=(3, 2)),
        progress=rng.normal(size=2),
        suffered=rng.normal(size=(3, 2)),
    )
    file = tmp_path / "run" / DEMONSTRATIONS_FILE
    assert Demonstrations.load(file, "a") is None
    demonstrations.save(file, "a")
    assert list(file.parent.iterdir()) == [file]
    loaded = Demonstrations.load(file, "a")
    assert loaded is not None
    for name in ("observations", "actions", "prices", "progress", "suffered"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(demonstrations, name))
    assert Demonstrations.load(file, "b") is None
    file.write_bytes(file.read_bytes()[:200])
    assert Demonstrations.load(file, "a") is None, "a truncated file was loaded"
