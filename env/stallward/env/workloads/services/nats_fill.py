"""Makes a stream in NATS and publishes messages to it, over NATS's own text protocol.

The stream is kept in memory. Each message has a subject of its own, ``orders.NUMBER``, by which it
is read. Every message ends with the same text, by which a reader knows that all of it has come.

Run: ``python -m stallward.env.workloads.services.nats_fill --tcp 127.0.0.1:28222 --messages 999``
"""

from __future__ import annotations

import json
import socket
import sys
import time
from io import BufferedReader
from typing import Annotated, Any, Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.key_value_fill import values

STREAM: Final = "orders"
LAST_TEXT: Final = b"that was all"
_WAIT_S: Final = 30.0
_INBOX: Final = b"fill"


class Client:
    """A connection that asks and waits for the answer.

    Args:
        address: Where the server listens.
        wait_s: How long to wait until it does.

    Raises:
        SystemExit: If nobody answers in that time.
    """

    def __init__(self, address: tuple[str, int], *, wait_s: float = _WAIT_S) -> None:
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                self._socket = socket.create_connection(address, timeout=wait_s)
                break
            except OSError as error:
                if time.monotonic() > deadline_s:
                    sys.exit(f"NATS does not answer at {address[0]}:{address[1]}: {error}")
                time.sleep(0.05)
        self._replies: BufferedReader = self._socket.makefile("rb")
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nSUB %b 1\r\n' % _INBOX)

    def ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        """Publish a message that asks for an answer, and return the answer, a JSON object."""
        self.publish(subject, payload)
        return self.answer()

    def publish(self, subject: str, payload: bytes) -> None:
        """Publish a message that asks for an answer."""
        head = b"PUB %b %b %d\r\n" % (subject.encode(), _INBOX, len(payload))
        self._socket.sendall(head + payload + b"\r\n")

    def answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            SystemExit: If the server refuses something.
        """
        while line := self._replies.readline():
            if line.startswith(b"MSG "):
                payload = self._replies.read(int(line.split()[-1]) + 2)
                answer: dict[str, Any] = json.loads(payload)
                if "error" in answer:
                    sys.exit(f"NATS refuses: {answer['error']}")
                return answer
            if line.startswith(b"PING"):
                self._socket.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                sys.exit(f"NATS refuses: {line.decode().strip()}")
        sys.exit("NATS has closed the connection")

    def close(self) -> None:
        """Close the connection."""
        self._replies.close()
        self._socket.close()


def fill(client: Client, *, messages: int, message_bytes: int, seed: int) -> int:
    """Make the stream and publish the messages; return how many it holds."""
    settings = {
        "name": STREAM,
        "subjects": [f"{STREAM}.*"],
        "storage": "memory",
        "retention": "limits",
        "discard": "old",
        "max_msgs": messages,
        "allow_direct": True,
    }
    client.ask(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(settings).encode())
    size_bytes = message_bytes - len(LAST_TEXT)
    held = 0
    for number, value in values(keys=messages, value_bytes=size_bytes, seed=seed):
        held = int(client.ask(f"{STREAM}.{number}", value + LAST_TEXT)["seq"])
    return held


def main(
    *,
    tcp: Annotated[str, "ADDRESS:PORT"],
    messages: int,
    message_bytes: int = 16_000,
    seed: int = 1,
) -> None:
    """Fill the server, and fail if it has dropped messages."""
    host, _, port = tcp.rpartition(":")
    client = Client((host, int(port)))
    held = fill(client, messages=messages, message_bytes=message_bytes, seed=seed)
    client.close()
    if held < messages:
        sys.exit(f"NATS kept {held} of {messages} messages; raise max_memory_store")


if __name__ == "__main__":
    run_program(__doc__, main)
