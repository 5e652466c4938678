"""Naming exactly which recordings were used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from stallward.env.errors import RecordingError


def dataset_hash(paths: Sequence[Path]) -> str:
    """SHA-256 over the contents of recordings, whatever the order of the paths.

    Raises:
        RecordingError: If a file cannot be read.
    """
    digests = []
    try:
        for path in paths:
            one = hashlib.sha256()
            for file in sorted(path.iterdir()):
                if file.suffix in {".parquet", ".json"}:
                    one.update(file.name.encode())
                    one.update(file.read_bytes())
            digests.append(one.hexdigest())
    except OSError as error:
        raise RecordingError(f"A recording cannot be read: {error}.") from error
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
