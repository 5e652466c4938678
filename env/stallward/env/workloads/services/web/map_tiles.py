r"""Tiles of a map: pieces of one large picture, made smaller and encoded as JPEG by Pillow.

``prepare DIR`` makes the picture, which is not compressed. ``serve DIR --socket PATH`` reads it
once, and answers ``NUMBER\n`` by the tile of that number. The file stays mapped; a tile needs a
short piece of many rows, so one request reads hundreds of pages that lie apart.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.line_server import serve
from stallward.env.workloads.services.mapped_files import read_once

if TYPE_CHECKING:
    from numpy.typing import NDArray

PICTURE_NAME: Final = "map.npy"
TILE: Final = 512
"""The pixels of the picture, in both directions, that a tile shows."""
_SHRINK: Final = 2
_COARSE: Final = 32
"""One random colour for so many pixels; there is some noise on them."""
_NOISE: Final = 8
_BANDS: Final = 3


def prepare(folder: Path, /, *, columns: int = 32, rows: int = 16, seed: int = 1) -> None:
    """Make a picture of so many columns and rows of tiles in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    width = columns * TILE
    path = folder / PICTURE_NAME
    shape = (rows * TILE, width, _BANDS)
    picture = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    noise = rng.integers(_NOISE, size=(_COARSE, width, _BANDS), dtype=np.uint8)
    for first in range(0, rows * TILE, _COARSE):
        colours = rng.integers(256 - _NOISE, size=(width // _COARSE, _BANDS), dtype=np.uint8)
        picture[first : first + _COARSE] = np.repeat(colours, _COARSE, axis=0) + noise
    picture.flush()


class Tiles:
    """The picture, mapped.

    Args:
        folder: A folder that was prepared.
    """

    def __init__(self, folder: Path) -> None:
        self._picture: NDArray[np.uint8] = np.load(folder / PICTURE_NAME, mmap_mode="r")
        self._columns = self._picture.shape[1] // TILE
        self.count: int = self._columns * (self._picture.shape[0] // TILE)

    def answer(self, request: bytes) -> bytes:
        """Make a tile, in the format JPEG; a number that no tile has is an error."""
        from PIL import Image

        try:
            number = int(request)
        except ValueError:
            number = -1
        if not 0 <= number < self.count:
            return b"error no tile " + request + b"\n"
        row, column = divmod(number, self._columns)
        top, left = row * TILE, column * TILE
        piece = Image.fromarray(self._picture[top : top + TILE, left : left + TILE])
        tile = io.BytesIO()
        piece.reduce(_SHRINK).save(tile, format="JPEG", quality=80)
        return tile.getvalue()


def serve_tiles(folder: Path, /, *, socket: Path) -> None:
    """Serve the tiles, once the picture is in memory."""
    tiles = Tiles(folder)
    read_once(folder / PICTURE_NAME)
    tiles.answer(b"0")
    serve(tiles.answer, socket)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_tiles)
