r"""A small server over RocksDB (by rocksdict), whose data is larger than its own cache.

``prepare DIR`` writes the database. ``serve DIR --socket PATH`` answers a line of keys,
``NUMBER NUMBER ...\n``, by ``ok BYTES\n``, the length of their values together, or by ``error``
and the first key that is missing. What its small cache of blocks does not hold comes from the page
cache, by system calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.line_server import serve
from stallward.env.workloads.services.mapped_files import read_once

_MIB: Final = 1 << 20


def open_database(folder: Path, *, cache_mib: int, read_only: bool) -> Any:
    """Open a database with the given cache of blocks, and without compression."""
    from rocksdict import (
        AccessType,
        BlockBasedOptions,
        Cache,
        DBCompressionType,
        Options,
        Rdict,
    )

    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_mib * _MIB))
    table.set_bloom_filter(10, block_based=False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.none())
    options.set_block_based_table_factory(table)
    access = AccessType.read_only() if read_only else AccessType.read_write()
    return Rdict(str(folder / "rocksdb"), options=options, access_type=access)


def key(number: int) -> bytes:
    """Return the key with that number."""
    return b"key-%010d" % number


def prepare(
    folder: Path, /, *, keys: int = 1_000_000, value_bytes: int = 1000, seed: int = 1
) -> None:
    """Write values of random bytes under the keys from 0 on, and compact them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    database = open_database(folder, cache_mib=8, read_only=False)
    for number in range(keys):
        database[key(number)] = rng.bytes(value_bytes)
    database.flush()
    database.compact_range(None, None)
    database.close()


class Store:
    """The database, opened to be read.

    Args:
        folder: A folder that was prepared.
        cache_mib: The size of RocksDB's own cache of blocks.
    """

    def __init__(self, folder: Path, *, cache_mib: int) -> None:
        self._database = open_database(folder, cache_mib=cache_mib, read_only=True)

    def answer(self, request: bytes) -> bytes:
        """Read the values of the requested keys."""
        total = 0
        for word in request.split():
            try:
                total += len(self._database[key(int(word))])
            except (ValueError, KeyError):
                return b"error no key " + word + b"\n"
        return b"ok %d\n" % total


def serve_store(folder: Path, /, *, socket: Path, cache_mib: int = 32) -> None:
    """Serve the database, once its files are in memory."""
    store = Store(folder, cache_mib=cache_mib)
    for path in sorted((folder / "rocksdb").glob("*.sst")):
        read_once(path)
    serve(store.answer, socket)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_store)
