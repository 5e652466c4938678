"""The policies that were sent to a node: files named by their digest, and a list of their names.

::

    DIR/policies.json            the policies, oldest first, and which were active
    DIR/versions/SHA256.onnx     a policy; never changed once it is there
    DIR/incoming/SHA256.part     an upload that has not ended; it can be resumed

A policy that is only partly here, whose content has another digest than was announced, or that
does not run on the node never becomes a version. So no other one is hidden or dropped for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.errors import (
    PolicyDamagedError,
    PolicyDiskError,
    PolicyPartError,
    PolicyStoreError,
)
from stallward.actuator.policies.index import (
    Activation,
    Index,
    StoredPolicy,
    checked_digest,
    load_index,
    save_index,
)
from stallward.actuator.runtime.private_files import open_private, sync_folder
from stallward.agent.controllers.policy_file import MAX_POLICY_BYTES
from stallward.agent.errors import PolicyError

MAX_STORED: Final = 200
"""The most policies that are kept."""
MAX_STORED_BYTES: Final = 1 << 30
"""The most that they may take together, apart from the two that decided last."""
MAX_ACTIVATIONS: Final = 50
"""The most activations that are remembered."""
MAX_INCOMING: Final = 4
"""The most uploads that have not ended; the oldest is dropped for one more."""
STALE_S: Final = 86400.0
"""An upload that nobody continued for this long is dropped."""
_LIST: Final = "policies.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class PolicyStore:
    """The store in one folder. One process writes to it, from any thread; others may read.

    Args:
        folder: The folder; it is made when the first policy comes.
        now_s: The Unix time.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now_s = now_s
        self._lock = threading.Lock()

    def policies(self) -> tuple[StoredPolicy, ...]:
        """All policies, oldest first.

        Raises:
            PolicyDiskError: If the list cannot be read.
        """
        return self._index().policies

    def activated(self, sha256: str, path: str) -> None:
        """Note that a policy decides now.

        Raises:
            PolicyDiskError: If that cannot be written.
        """
        with self._lock:
            index = self._index()
            if index.activations and index.activations[-1].sha256 == sha256:
                return
            one = Activation(sha256=sha256, path=path, activated_s=self._now_s())
            self._keep(replace(index, activations=(*index.activations, one)))

    def dropped(self, sha256: str) -> None:
        """Forget that a policy ever decided, so that nothing goes back to it.

        Raises:
            PolicyDiskError: If that cannot be written.
        """
        with self._lock:
            index = self._index()
            kept = tuple(one for one in index.activations if one.sha256 != sha256)
            self._keep(replace(index, activations=kept))

    def before(self, sha256: str) -> Activation | None:
        """The policy that decided before the one that does now; ``None`` if there was none.

        Args:
            sha256: The digest of the policy that decides now.

        Raises:
            PolicyDiskError: If the list cannot be read.
        """
        earlier = [one for one in self._index().activations if one.sha256 != sha256]
        return earlier[-1] if earlier else None

    def rolled_back(self, to: Activation | None) -> None:
        """Forget what was activated after ``to``; everything for ``None``.

        So rolling back again goes further back, and not to and fro.

        Raises:
            PolicyDiskError: If that cannot be written.
        """
        with self._lock:
            index = self._index()
            kept = index.activations.index(to) + 1 if to in index.activations else 0
            self._keep(replace(index, activations=index.activations[:kept]))

    def find(self, name_or_digest: str) -> StoredPolicy | None:
        """The policy of a digest, or of its first digits, or the newest of a name.

        Raises:
            PolicyStoreError: If several digests begin so, or the list cannot be read.
        """
        policies = self.policies()
        named = [one for one in policies if one.name == name_or_digest]
        if named:
            return named[-1]
        if not re.fullmatch(r"[0-9a-f]{6,64}", name_or_digest):
            return None
        begin_so = [one for one in policies if one.sha256.startswith(name_or_digest)]
        if len(begin_so) > 1:
            raise PolicyStoreError(
                f"{len(begin_so)} policies begin with {name_or_digest}.",
                next_step="Give more digits of the digest.",
            )
        return begin_so[0] if begin_so else None

    def named_before(self, name: str) -> StoredPolicy | None:
        """The policy of a name that :meth:`find` found until the newest of that name came.

        Raises:
            PolicyDiskError: If the list cannot be read.
        """
        named = [one for one in self.policies() if one.name == name]
        return named[-2] if len(named) > 1 else None

    def remove(self, sha256: str) -> StoredPolicy:
        """Remove a policy, and that it ever decided, so that nothing goes back to it.

        Raises:
            PolicyDiskError: If the list or the file cannot be written.
            PolicyStoreError: If there is none of that digest.
        """
        with self._lock:
            index = self._index()
            found = [one for one in index.policies if one.sha256 == sha256]
            if not found:
                raise PolicyStoreError(f"There is no policy {sha256[:12]} in the store.")
            self._keep(
                Index(
                    policies=tuple(one for one in index.policies if one.sha256 != sha256),
                    activations=tuple(one for one in index.activations if one.sha256 != sha256),
                )
            )
        return found[0]

    def file(self, policy: StoredPolicy) -> Path:
        """The file of a policy."""
        return self._folder / "versions" / f"{policy.sha256}.onnx"

    def received_bytes(self, sha256: str) -> int:
        """How much of a policy is here: all of it, the part that was sent, or nothing.

        Raises:
            PolicyStoreError: If ``sha256`` is no digest.
        """
        for path in (self._version(sha256), self._incoming(sha256)):
            with contextlib.suppress(OSError):
                return path.stat().st_size
        return 0

    def append(self, sha256: str, offset: int, chunk: bytes) -> int:
        """Take the next part of a policy.

        Args:
            sha256: The digest of the whole.
            offset: Where the part begins: at what is here already.
            chunk: The part.

        Returns:
            How much is here now.

        Raises:
            PolicyPartError: If the part begins elsewhere.
            PolicyDiskError: If it cannot be written.
            PolicyStoreError: If ``sha256`` is no digest, or the policy becomes too large.
        """
        with self._lock:
            return self._append(sha256, offset, chunk)

    def _append(self, sha256: str, offset: int, chunk: bytes) -> int:
        received = self.received_bytes(sha256)
        if self._version(sha256).exists():
            return received
        if offset != received:
            raise PolicyPartError(
                f"The part begins at {offset}, and {received} bytes of this policy are here.",
                next_step=f"Go on at {received}.",
            )
        if received + len(chunk) > MAX_POLICY_BYTES:
            with contextlib.suppress(OSError):
                self._incoming(sha256).unlink()
            raise PolicyStoreError(f"A policy has at most {MAX_POLICY_BYTES} bytes.")
        try:
            self._make_folders()
            if received == 0:
                self._drop_incoming()
            with open_private(self._incoming(sha256), os.O_APPEND) as file:
                file.write(chunk)
        except OSError as error:
            raise self._unwritable(error) from error
        return received + len(chunk)

    def complete(self, sha256: str, name: str, trial: Callable[[Path], object]) -> StoredPolicy:
        """Make a policy of what was received, if its digest is right and it runs here.

        Args:
            sha256: Its digest.
            name: The name that its sender gives it.
            trial: Tries the file, while others may use the store. What it raises is raised; after a
                PolicyError, as for another digest, what was received is dropped.

        Raises:
            PolicyDamagedError: If the digest is another one.
            PolicyDiskError: If it cannot be written.
            PolicyStoreError: If the name cannot be used, or nothing was received.
        """
        if not _NAME.fullmatch(name):
            raise PolicyStoreError(
                f"{name!r:.80} cannot be the name of a policy.",
                next_step="Use letters, digits, '.', '_' and '-', at most 64.",
            )
        with self._lock:
            path = self._whole(sha256)
        try:
            trial(path)
        except PolicyError:
            with contextlib.suppress(OSError):
                self._incoming(sha256).unlink()
            raise
        with self._lock:
            return self._complete(sha256, name)

    def _complete(self, sha256: str, name: str) -> StoredPolicy:
        index = self._index()  # first: a version that no list names would stay for ever
        try:
            size = self._make_version(sha256)
        except OSError as error:
            raise self._unwritable(error) from error
        others = tuple(one for one in index.policies if one.sha256 != sha256)
        policy = StoredPolicy(name=name, sha256=sha256, size_bytes=size, stored_s=self._now_s())
        self._keep(replace(index, policies=(*others, policy)))
        return policy

    def _make_version(self, sha256: str) -> int:
        """Rename an upload; returns its size."""
        whole, version = self._whole(sha256), self._version(sha256)
        if whole != version:
            whole.chmod(0o600)
            whole.rename(version)
            sync_folder(version.parent)
        return version.stat().st_size

    def _whole(self, sha256: str) -> Path:
        """The file of a policy that was received as a whole: a version, or an upload."""
        version, incoming = self._version(sha256), self._incoming(sha256)
        if version.exists():
            return version
        if not incoming.exists():
            raise PolicyStoreError(
                f"Nothing of the policy {sha256[:12]} is here.", next_step="Send it first."
            )
        with incoming.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if found != sha256:
            incoming.unlink()
            raise PolicyDamagedError(
                f"What was sent has the digest {found[:12]}, not {sha256[:12]}.",
                next_step="Send it again.",
            )
        return incoming

    def _index(self) -> Index:
        return load_index(self._folder / _LIST)

    def _keep(self, index: Index) -> None:
        """Write the list, without what is too old; then remove the files of what it lacks."""
        kept = _bounded(index)
        names = {self.file(one).name for one in kept.policies}
        try:
            self._make_folders()
            save_index(self._folder / _LIST, kept)
            for version in (self._folder / "versions").glob("*.onnx"):
                if version.name not in names:
                    version.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def _drop_incoming(self) -> None:
        """Drop uploads that nobody continues, and the oldest if there are too many."""
        parts = sorted((self._folder / "incoming").glob("*.part"), key=lambda p: p.stat().st_mtime)
        stale = [part for part in parts if self._now_s() - part.stat().st_mtime > STALE_S]
        fresh = [part for part in parts if part not in stale]
        for part in (*stale, *fresh[: max(len(fresh) - MAX_INCOMING + 1, 0)]):
            part.unlink(missing_ok=True)

    def _make_folders(self) -> None:
        for folder in (self._folder, self._folder / "versions", self._folder / "incoming"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _version(self, sha256: str) -> Path:
        return self._folder / "versions" / f"{checked_digest(sha256)}.onnx"

    def _incoming(self, sha256: str) -> Path:
        return self._folder / "incoming" / f"{checked_digest(sha256)}.part"

    def _unwritable(self, error: OSError) -> PolicyDiskError:
        return PolicyDiskError(
            f"The policy cannot be stored in {self._folder}: {error.strerror}.",
            next_step="Check its rights and the free space.",
        )


def _bounded(index: Index) -> Index:
    """The list without the oldest policies, as far as there are too many or too large ones.

    What decides now, what it would go back to, and what has just come stay in any case. Nothing
    goes back to a policy that is dropped.
    """
    needed = {one.sha256 for one in index.activations[-2:]}
    needed |= {one.sha256 for one in index.policies[-1:]}
    kept: list[StoredPolicy] = []
    size_bytes = 0
    for one in reversed(index.policies):
        size_bytes += one.size_bytes
        has_room = len(kept) < MAX_STORED and size_bytes <= MAX_STORED_BYTES
        if has_room or one.sha256 in needed:
            kept.append(one)
    dropped = {one.sha256 for one in index.policies} - {one.sha256 for one in kept}
    activations = (one for one in index.activations if one.sha256 not in dropped)
    return Index(policies=tuple(reversed(kept)), activations=tuple(activations)[-MAX_ACTIVATIONS:])
