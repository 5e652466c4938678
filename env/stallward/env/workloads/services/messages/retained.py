"""A message broker: Mosquitto, which keeps the last message of every sensor.

``serve --socket PATH`` becomes Mosquitto on that Unix socket. ``fill --socket PATH`` publishes a
retained message for each sensor of each room, by MQTT 3.1.1. Who subscribes to a room gets them
all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.key_value_fill import values
from stallward.env.workloads.services.programs import connected, needed

SENSORS: Final = 8
"""How many sensors a room has."""
_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _SUBACK = 0x10, 0x20, 0x30, 0x82, 0x90
_PING, _PONG = 0xC0, 0xD0
_RETAINED: Final = 0x01

_CONFIGURATION: Final = """\
listener 0 {socket}
allow_anonymous true
persistence false
log_dest none
user root
"""


def packet(kind: int, content: bytes) -> bytes:
    """Return an MQTT packet with its first byte and its length, in groups of seven bits."""
    left, length = len(content), bytearray()
    while True:
        left, digit = divmod(left, 128)
        length.append(digit | 0x80 if left else digit)
        if not left:
            return bytes([kind]) + bytes(length) + content


def text(content: bytes) -> bytes:
    """Return a string of MQTT: two bytes with its length come before it."""
    return len(content).to_bytes(2, "big") + content


def messages(*, rooms: int, message_bytes: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Generate pairs of a topic, ``room/00000/0`` and so on, and its message."""
    for number, value in values(keys=rooms * SENSORS, value_bytes=message_bytes, seed=seed):
        room, sensor = divmod(number, SENSORS)
        yield b"room/%05d/%d" % (room, sensor), value


class Client:
    """A connection to the broker.

    Args:
        path: Its Unix socket.

    Raises:
        SystemExit: If it does not answer or refuses the connection.
    """

    def __init__(self, path: Path) -> None:
        self._socket = connected(path)
        self._packets: BufferedReader = self._socket.makefile("rb")
        # Protocol 4, a clean session, and no limit on how long this client may be silent.
        self.send(packet(_CONNECT, text(b"MQTT") + b"\x04\x02\x00\x00" + text(b"fill")))
        kind, content = self.receive()
        if kind != _CONNACK or content[1] != 0:
            sys.exit(f"Mosquitto refuses: {content!r}")

    def send(self, packets: bytes) -> None:
        """Send packets."""
        self._socket.sendall(packets)

    def receive(self) -> tuple[int, bytes]:
        """Return the first byte and the content of the next packet.

        Raises:
            SystemExit: If the broker has closed the connection.
        """
        first = self._packets.read(1)
        size = shift = 0
        while first:
            digit = self._packets.read(1)[0]
            size, shift = size | (digit & 0x7F) << shift, shift + 7
            if not digit & 0x80:
                return first[0], self._packets.read(size)
        sys.exit("Mosquitto has closed the connection")

    def retained(self, topic: bytes) -> list[bytes]:
        """Subscribe to a topic, and return the messages that the broker kept of it."""
        self.send(packet(_SUBSCRIBE, b"\x00\x01" + text(topic) + b"\x00") + packet(_PING, b""))
        found = []
        while (received := self.receive())[0] != _PONG:
            kind, content = received
            if kind & 0xF0 == _PUBLISH:
                found.append(content[2 + int.from_bytes(content[:2], "big") :])
        return found

    def close(self) -> None:
        """Close the connection."""
        self._packets.close()
        self._socket.close()


def fill(client: Client, *, rooms: int, message_bytes: int, seed: int) -> None:
    """Publish all messages.

    Raises:
        SystemExit: If the broker has not kept those of the last room.
    """
    for topic, message in messages(rooms=rooms, message_bytes=message_bytes, seed=seed):
        client.send(packet(_PUBLISH | _RETAINED, text(topic) + message))
    kept = len(client.retained(b"room/%05d/+" % (rooms - 1)))
    if kept < SENSORS:
        sys.exit(f"Mosquitto kept {kept} of {SENSORS} messages of the last room")


def serve_command(path: Path) -> list[str]:
    """Return the command line of the broker, and write its configuration beside the socket.

    Raises:
        SystemExit: If Mosquitto is not installed.
    """
    configuration = path.with_name("mosquitto.conf")
    configuration.write_text(_CONFIGURATION.format(socket=path), encoding="utf-8")
    return [needed("mosquitto", "mosquitto"), "-c", str(configuration)]


def serve(*, socket: Path) -> list[str]:
    """The command line of the broker."""
    return serve_command(socket)


def publish(
    *, socket: Path, rooms: int = 10_000, message_bytes: int = 2000, seed: int = 1
) -> None:
    """Publish all messages to the broker."""
    client = Client(socket)
    fill(client, rooms=rooms, message_bytes=message_bytes, seed=seed)
    client.close()


if __name__ == "__main__":
    run_program(__doc__, serve=serve, fill=publish)
