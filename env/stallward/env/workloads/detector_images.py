"""The detector's images: binary PPM files of 224 x 224 pixels, 150,543 bytes each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMAGE_SIDE_PIXELS = 224


def write_images(folder: Path, *, count: int, seed: int) -> None:
    """Write ``count`` PPM images of coloured squares with noise, from ``image-00000.ppm`` on."""
    rng = np.random.default_rng(seed)
    side = IMAGE_SIDE_PIXELS
    header = f"P6\n{side} {side}\n255\n".encode()
    for index in range(count):
        coarse = rng.integers(0, 192, size=(8, 8, 3), dtype=np.uint8)
        pixels = np.kron(coarse, np.ones((side // 8, side // 8, 1), dtype=np.uint8))
        pixels += rng.integers(0, 64, size=pixels.shape, dtype=np.uint8)
        (folder / f"image-{index:05d}.ppm").write_bytes(header + pixels.tobytes())


def read_image(path: Path) -> NDArray[np.float32]:
    """Read a binary PPM as the model's input, shape ``(1, 3, H, W)`` in [0, 1].

    Raises:
        ValueError: If the file is not a binary PPM like those that this module writes.
    """
    raw = path.read_bytes()
    fields = raw[:32].split(maxsplit=4)
    if len(fields) < 5 or fields[0] != b"P6" or fields[3] != b"255":
        raise ValueError(f"{path} is not a binary PPM with 8 bits a channel")
    width, height = int(fields[1]), int(fields[2])
    pixels = np.frombuffer(raw[-width * height * 3 :], dtype=np.uint8)
    planes = pixels.reshape(height, width, 3).transpose(2, 0, 1)[None]
    return np.ascontiguousarray(planes, dtype=np.float32) / np.float32(255)
