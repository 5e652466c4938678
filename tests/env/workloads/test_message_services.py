"""A mail server and a broker are filled, and give messages back."""

from __future__ import annotations

import socket
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from free_port import free_port
from workload_servers import SERVICES, answered, needed, run_service
from workload_servers import serving as serving_soon

from stallward.env.workloads.services.messages.mailboxes import FIRST_ID, write_mailbox
from stallward.env.workloads.services.messages.retained import Client, fill, messages, packet
from stallward.env.workloads.services.programs import connected

serving = partial(serving_soon, patience_s=60.0)


def test_the_mail_server_gives_messages_by_their_ids(programs: Path, tmp_path: Path) -> None:
    needed("dovecot", "dovecot-imapd")
    sizes = ("--people", "2", "--messages", "300", "--kib", "2")
    run_service("messages.mailboxes", "prepare", str(tmp_path), *sizes)
    port, path = free_port(), tmp_path / "ready"
    argv = (sys.executable, "-m", f"{SERVICES}.messages.mailboxes", "serve", str(tmp_path))
    with serving(path, *argv, "--ready", str(path), "--port", str(port)):
        address = f"127.0.0.1:{port}"
        lines = answered(programs, tmp_path, "dovecot-zpaq", keys="300", tcp=address)
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"a login u1 p\r\nb select inbox\r\n")
            client.sendall(b"c uid fetch 100003,100299,100300 (body.peek[])\r\nd logout\r\n")
            with client.makefile("rb") as replies:
                answer = replies.read()
    assert lines[:, 3].all()
    assert answer.count(b"BODY[]") == 2, "there is no message 300"
    kept = [(tmp_path / "mail/u1/cur" / f"{number}.M1P1.host:2,S").read_bytes()
            for number in (3, 299)]  # fmt: skip
    assert all(text.replace(b"\n", b"\r\n") in answer for text in kept)
    assert b"c OK Fetch completed" in answer


def test_a_mailbox_lists_its_messages(tmp_path: Path) -> None:
    write_mailbox(tmp_path / "u0", messages=3, kib=1, seed=1)
    head, *ids = (tmp_path / "u0" / "dovecot-uidlist").read_text().splitlines()
    assert head.split()[:3] == ["3", "V1", f"N{FIRST_ID + 3}"]
    listed = {line.partition(":")[2] for line in ids}
    files = {path.name: path.read_bytes() for path in (tmp_path / "u0" / "cur").iterdir()}
    assert {name.partition(":")[0] for name in files} == listed
    assert len(set(files.values())) == 3
    assert all(max(map(len, text.splitlines())) < 80 for text in files.values())


def test_who_subscribes_to_a_room_gets_its_messages(programs: Path, tmp_path: Path) -> None:
    needed("mosquitto", "mosquitto")
    path = tmp_path / "mosquitto.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.messages.retained", "serve", "--socket", str(path))
    with serving(path, *argv):
        client = Client(path)
        fill(client, rooms=40, message_bytes=700, seed=1)
        found = client.retained(b"room/00039/+")
        other = client.retained(b"room/00040/+")
        client.close()
        lines = answered(programs, tmp_path, "mosquitto-minimap", keys="40")
    made = dict(messages(rooms=40, message_bytes=700, seed=1))
    wanted = [text for topic, text in made.items() if topic.startswith(b"room/00039/")]
    assert sorted(found) == sorted(wanted)
    assert other == []
    assert lines[:, 3].all()


@pytest.mark.parametrize(
    ("size", "length"), [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001")]
)
def test_a_packet_has_its_length_in_groups_of_seven_bits(size: int, length: str) -> None:
    assert packet(0x30, bytes(size)) == b"\x30" + bytes.fromhex(length) + bytes(size)


def test_a_client_waits_for_somebody_to_listen(tmp_path: Path) -> None:
    path = tmp_path / "late.sock"
    with pytest.raises(SystemExit, match="nobody answers at"):
        connected(path, wait_s=0.1)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))  # the socket is there, but nobody listens
        later = threading.Timer(0.2, server.listen)
        later.start()
        with connected(path):
            later.join()
