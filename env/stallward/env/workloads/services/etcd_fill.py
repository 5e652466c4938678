"""Puts values into etcd through its JSON gateway, many in one transaction.

Keys are eight digits, which are valid base64 as they stand: the gateway takes keys in base64, and
a load generator can write such a key into a request without encoding it.

Run: ``python -m stallward.env.workloads.services.etcd_fill --tcp 127.0.0.1:28379 --keys 150000``
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import sys
import time
from typing import Annotated, Any, Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.key_value_fill import values

_BATCH: Final = 100
"""etcd takes at most 128 operations in a transaction."""
_WAIT_S: Final = 30.0


def key_text(number: int) -> str:
    """Return the base64 text of the key with that number."""
    return f"{number:08d}"


class Gateway:
    """A connection to etcd's JSON gateway.

    Args:
        address: ``ADDRESS:PORT``.
    """

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=_WAIT_S)

    def call(self, method: str, question: object) -> dict[str, Any]:
        """Call a method, such as ``range``.

        Raises:
            SystemExit: If etcd refuses.
            OSError: If nobody answers.
        """
        self._connection.request("POST", f"/v3/kv/{method}", json.dumps(question))
        reply = self._connection.getresponse()
        text = reply.read()
        if reply.status != http.HTTPStatus.OK:
            sys.exit(f"etcd refuses: {text.decode(errors='replace')[:300]}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def wait(self, wait_s: float = _WAIT_S) -> None:
        """Wait until etcd answers.

        Raises:
            SystemExit: If it does not in that time.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                self.call("range", {"key": key_text(0)})
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() > deadline_s:
                    sys.exit(f"etcd does not answer: {error}")
                time.sleep(0.1)
            else:
                return


def fill(gateway: Gateway, *, keys: int, value_bytes: int, seed: int) -> int:
    """Put the values; return how many keys etcd holds."""
    puts = (
        {"requestPut": {"key": key_text(key), "value": base64.b64encode(value).decode()}}
        for key, value in values(keys=keys, value_bytes=value_bytes, seed=seed)
    )
    while batch := list(itertools.islice(puts, _BATCH)):
        gateway.call("txn", {"success": batch})
    everything = {"key": "AA==", "range_end": "AA==", "count_only": True}
    return int(gateway.call("range", everything).get("count", 0))


def main(
    *,
    tcp: Annotated[str, "ADDRESS:PORT"],
    keys: int,
    value_bytes: int = 1500,
    seed: int = 1,
) -> None:
    """Fill the server, and fail if it has not kept the values."""
    gateway = Gateway(tcp)
    gateway.wait()
    kept = fill(gateway, keys=keys, value_bytes=value_bytes, seed=seed)
    gateway.close()
    if kept < keys:
        sys.exit(f"etcd kept {kept} of {keys} values; raise its --quota-backend-bytes")


if __name__ == "__main__":
    run_program(__doc__, main)
