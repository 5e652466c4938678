r"""Vector search: an index of random vectors (HNSW, by usearch) that stays a mapped file.

``prepare DIR`` makes the index. ``serve DIR --socket PATH`` answers ``NUMBER\n``, which asks for
the neighbours of a vector close to the one of that number, by ``ok NUMBER ...\n``. A search
follows the edges of a graph from vector to vector, so one request reads hundreds of pages that
lie apart in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.line_server import serve

if TYPE_CHECKING:
    from numpy.typing import NDArray

INDEX_NAME: Final = "vectors.usearch"
_DIMENSIONS: Final = 256
_FACTORS: Final = 24
"""Of how many independent factors a vector is made. Vectors without such structure have no near
neighbours, and a search would look at much of the index."""
_NEIGHBOURS: Final = 10
_BATCH: Final = 10_000
_NOISE: Final = np.float32(0.1)


class VectorSource:
    """Makes vectors from a seed, each from its number alone.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = np.random.default_rng(seed)
        self._mixing = rng.standard_normal((_FACTORS, _DIMENSIONS), dtype=np.float32)

    def batch(self, first: int, count: int) -> NDArray[np.float32]:
        """Make the vectors from number ``first`` on; the same batches give the same vectors."""
        rng = np.random.default_rng([self._seed, first])
        factors = rng.standard_normal((count, _FACTORS), dtype=np.float32)
        vectors: NDArray[np.float32] = factors @ self._mixing
        return vectors


def open_index() -> Any:
    """Make an empty index of vectors with 32-bit components."""
    from usearch.index import Index

    return Index(
        ndim=_DIMENSIONS,
        metric="cos",
        dtype="f32",
        connectivity=16,
        expansion_add=64,
        expansion_search=48,
    )


def prepare(folder: Path, /, *, vectors: int = 100_000, seed: int = 1) -> None:
    """Make the index in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    index, source = open_index(), VectorSource(seed)
    for first in range(0, vectors, _BATCH):
        batch = source.batch(first, min(_BATCH, vectors - first))
        index.add(np.arange(first, first + len(batch)), batch)
    index.save(str(folder / INDEX_NAME))


class VectorSearch:
    """The index, mapped and not loaded, so that its pages are those of the file.

    Args:
        folder: A folder that was prepared.
        seed: The seed of the queries.
    """

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self._index = open_index()
        self._index.view(str(folder / INDEX_NAME))
        self._rng = np.random.default_rng(seed)

    def answer(self, request: bytes) -> bytes:
        """Search for the neighbours of a vector near the requested one."""
        try:
            vector = self._index.get(int(request) % len(self._index))
        except ValueError:
            return b"error not a number\n"
        noise = self._rng.standard_normal(_DIMENSIONS, dtype=np.float32)
        found = self._index.search(vector + _NOISE * noise, _NEIGHBOURS, threads=1)
        return ("ok " + " ".join(map(str, found.keys)) + "\n").encode()


def serve_index(folder: Path, /, *, socket: Path, seed: int = 1) -> None:
    """Serve the index, once a first search is done."""
    search = VectorSearch(folder, seed)
    search.answer(b"0")
    serve(search.answer, socket)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_index)
