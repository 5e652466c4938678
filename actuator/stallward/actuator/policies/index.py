"""The list of a node's policies, as a file that is replaced as a whole."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PolicyDiskError, PolicyStoreError
from stallward.actuator.runtime.private_files import replace_file
from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """One policy in the store."""

    name: str
    """The name that its sender gave it; several policies may have the same."""
    sha256: str
    """Its digest, which identifies it."""
    size_bytes: int
    stored_s: float
    """When it was complete, in Unix time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """One policy that was made to decide."""

    sha256: str
    path: str
    """The file that it was loaded from; it need not be in the store."""
    activated_s: float
    """When, in Unix time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The content of ``policies.json``."""

    policies: tuple[StoredPolicy, ...] = ()
    activations: tuple[Activation, ...] = ()
    """Oldest first; a policy is not there twice in a row."""


def load_index(path: Path) -> Index:
    """Read the list; an empty one if there is none.

    Raises:
        PolicyDiskError: If it cannot be read.
    """
    try:
        return read(Index, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Index()
    except (OSError, ValueError, SchemaError) as error:
        raise PolicyDiskError(
            f"The list of policies {path} cannot be read: {error}.",
            next_step="Remove it, and send the policies again.",
        ) from error


def save_index(path: Path, index: Index) -> None:
    """Replace the list, as a whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    replace_file(path, json.dumps(asdict(index), indent=1).encode())


def checked_digest(sha256: str) -> str:
    """The digest itself, which may become a part of a path.

    Raises:
        PolicyStoreError: If it is none.
    """
    if not _DIGEST.fullmatch(sha256):
        raise PolicyStoreError(
            f"{sha256!r:.80} is no SHA-256 digest.", next_step="Give 64 hexadecimal digits."
        )
    return sha256
