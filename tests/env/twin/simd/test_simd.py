"""Model code gives the same for eight nodes at once, compiled, as for one node in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from stallward.env.twin.physics import randomness
from stallward.env.twin.simd import elementary, values
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.layout import Arrays, Columns, Layout, Rows, tiles
from stallward.env.twin.simd.one_lane import (
    add_to_lane,
    exchange,
    raise_lane,
    set_lane,
    value_of_lane,
)
from stallward.env.twin.simd.records import local_rows, reader

Array = NDArray[np.float64]


class Example:
    x: float
    y: float
    results: Annotated[Rows, 14]
    grid: Annotated[Rows, 2, 3]


LAYOUT = Layout(Example)
example_at = reader(Example, LAYOUT)


@njit(error_model="numpy")  # type: ignore[untyped-decorator]
def _compute(state: Array, small: NDArray[np.uint8]) -> None:
    for at in range(0, state.shape[0] * WIDTH, WIDTH):
        node = example_at(state, at)
        x, y = node.x, node.y
        node.results[0] = elementary.exp(x)
        node.results[1] = elementary.log(y)
        node.results[2] = elementary.power(y, x)
        node.results[3] = elementary.log_of_one_plus(y)
        node.results[4] = elementary.remainder(y, 0.7)
        node.results[5] = values.minimum(x, y) + values.maximum(x, 1.0)
        node.results[6] = values.where((x > 0.0) & (y < 2.0) | values.is_nan(x), 1.0, -x)
        node.results[7] = values.floor(x) + values.square_root(y)
        one, other = elementary.normals(values.minimum(y / 10.0, 0.999), values.minimum(y, 0.99))
        node.results[8], node.results[9] = one, other
        shared = local_rows(2)
        shared[0], shared[1] = 3.0, x
        node.results[10] = shared[0] + shared[1]
        for lane in range(WIDTH):
            set_lane(node.results, 11, lane, value_of_lane(x, lane) * lane)
        add_to_lane(node.results, 11, 3, 100.0)
        raise_lane(node.results, 11, 2, 50.0)
        node.results[12] = exchange(small, at, 2.0 + values.floor(y))
        node.results[13] = values.where(values.anywhere(x > 4.9), 1.0, 0.0)


@pytest.fixture(scope="module")
def computed() -> tuple[Arrays, NDArray[np.uint8]]:
    nodes = 1000
    state = LAYOUT.empty(nodes)
    example = Arrays(LAYOUT, state, np.arange(nodes))
    rng = np.random.default_rng(1)
    example.x, example.y = rng.uniform(-5.0, 5.0, nodes), rng.uniform(1e-9, 5.0, nodes)
    small = np.arange(tiles(nodes) * WIDTH).astype(np.uint8)
    _compute(state, small)
    return example, small


def test_elementary_functions_are_exact_compiled_and_in_python(
    computed: tuple[Arrays, NDArray[np.uint8]],
) -> None:
    example, _ = computed
    x, y, results = example.x, example.y, example.results
    size = np.sqrt(-2.0 * np.log1p(-np.minimum(y / 10.0, 0.999)))
    turn = 2.0 * np.pi * np.minimum(y, 0.99)
    expected = [np.exp(x), np.log(y), y**x, np.log1p(y), y % 0.7]
    for row, values_ in enumerate(expected):
        np.testing.assert_allclose(results[row], values_, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(results[8], size * np.cos(turn), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(results[9], size * np.sin(turn), rtol=1e-12, atol=1e-14)
    for n in range(0, 1000, 97):
        one, other = float(x[n]), float(y[n])
        alone: list[Any] = [
            elementary.exp(one),
            elementary.log(other),
            elementary.power(other, one),
            elementary.log_of_one_plus(other),
            elementary.remainder(other, 0.7),
        ]
        np.testing.assert_allclose(alone, results[:5, n], rtol=1e-14)
    assert elementary.power(0.0, 0.0) == 1.0
    assert elementary.power(0.0, 2.0) == 0.0


def test_choices_and_single_nodes(computed: tuple[Arrays, NDArray[np.uint8]]) -> None:
    example, small = computed
    x, y, results = example.x, example.y, example.results
    np.testing.assert_array_equal(results[5], np.minimum(x, y) + np.maximum(x, 1.0))
    np.testing.assert_array_equal(results[6], np.where((x > 0.0) & (y < 2.0), 1.0, -x))
    np.testing.assert_array_equal(results[7], np.floor(x) + np.sqrt(y))
    np.testing.assert_array_equal(results[10], 3.0 + x)
    lane = np.arange(1000) % WIDTH
    single = x * lane + 100.0 * (lane == 3)
    np.testing.assert_allclose(results[11], np.where(lane == 2, np.maximum(single, 50.0), single))
    np.testing.assert_array_equal(results[12], np.arange(1000) % 256)
    np.testing.assert_array_equal(small[:1000], 2 + np.floor(y))
    any_of_eight = np.repeat((x > 4.9).reshape(-1, WIDTH).any(axis=1), WIDTH)
    np.testing.assert_array_equal(results[13], any_of_eight)


def test_fields_are_read_as_copies_and_set_whole() -> None:
    state = LAYOUT.empty(11)
    example = Arrays(LAYOUT, state, np.arange(11))
    example.grid = np.arange(66.0).reshape(2, 3, 11)
    some = example.at(np.array([2, 9]))
    np.testing.assert_array_equal(some.grid[1, 2], [57.0, 64.0])
    some.x = 5.0
    assert example.x.tolist() == [0, 0, 5, 0, 0, 0, 0, 0, 0, 5, 0]
    with pytest.raises(ValueError, match="read-only"):
        example.x[0] = 1.0
    with pytest.raises(AttributeError):
        example.z = 1.0
    columns = Columns(LAYOUT, np.zeros((3, LAYOUT.rows)))
    columns["grid"][:, 1, 2] = 7.0
    columns["y"] += 2.0
    assert columns.matrix.sum() == 27.0


def test_random_numbers_follow_from_key_and_count() -> None:
    keys = randomness.keys_of(5, 2000)
    np.testing.assert_array_equal(randomness.keys_of(5, 10), keys[:10])
    assert len(np.unique(np.concatenate([keys, randomness.keys_of(6, 2000)]))) == 4000
    np.testing.assert_array_equal(randomness.keys_of(5, 10, draws=4), np.resize(keys[:4], 10))
    numbers = randomness.uniforms(keys, np.zeros(2000, dtype=np.int64), 50)
    later = randomness.uniforms(keys, np.full(2000, 20), 30)
    np.testing.assert_array_equal(numbers[20:], later)
    back = randomness.rewound(keys, 3)
    count = 3 * randomness.PER_TICK
    again = randomness.uniforms(back, np.full(2000, count), 50)
    np.testing.assert_array_equal(numbers, again)
    assert (numbers >= 0.0).all()
    assert (numbers < 1.0).all()
    assert numbers.mean() == pytest.approx(0.5, abs=0.005)
    assert numbers.var() == pytest.approx(1 / 12, abs=0.002)
    neighbours = np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]
    assert abs(neighbours) < 0.015


@pytest.mark.slow
def test_compiled_code_is_kept_where_it_can_be_and_nothing_writable_does_not_hurt(
    tmp_path: Path,
) -> None:
    code = (
        "import numpy as np\n"
        "from stallward.env.twin.simd.jit import cache_folder\n"
        "from stallward.env.twin.physics.randomness import keys_of\n"
        "print(keys_of(1, 3)[0], cache_folder())\n"
    )
    nowhere = "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/proc/none']\n"
    outputs = []
    for before, variables in (
        ("", {"NUMBA_CACHE_DIR": str(tmp_path / "given")}),
        ("", {"XDG_CACHE_HOME": str(tmp_path / "home")}),
        ("", {"XDG_CACHE_HOME": "/proc/none"}),
        (nowhere, {"XDG_CACHE_HOME": "/proc/none"}),
    ):
        environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
        done = subprocess.run(
            [sys.executable, "-c", before + code],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout.split())
    assert len({key for key, _ in outputs}) == 1
    assert outputs[0][1] == str(tmp_path / "given")
    assert outputs[1][1] == str(tmp_path / "home" / "stallward")
    assert list((tmp_path / "given").glob("*.nbc"))
    assert not Path(outputs[2][1]).exists(), "the passing folder is gone with its process"
    assert outputs[3][1] == "None"
