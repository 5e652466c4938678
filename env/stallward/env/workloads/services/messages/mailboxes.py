"""A mail server: Dovecot with the mailboxes of some people, each message a file (Maildir).

``prepare DIR --people N --messages N`` writes the messages. ``serve DIR --port PORT --ready PATH``
reads them once, so that they are in memory, and becomes Dovecot on the loopback address. Each
connection gets a process of its own. Any password will do, and whoever is asked for exists.
"""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.key_value_fill import values
from stallward.env.workloads.services.mapped_files import read_once
from stallward.env.workloads.services.programs import become_server, needed

FIRST_ID: Final = 100_000
"""The id of a person's first message: ids begin at 1, and the numbers of a load at 0."""
_PACKAGE: Final = "dovecot-imapd"
_LINE_BYTES: Final = 72
_USER: Final = "mail"
"""Who serves if root starts it: Dovecot reads no mail as root. It may read what only root may."""

# Messages are never moved or marked, so an index in memory is made anew for each connection.
_CONFIGURATION: Final = """\
protocols = imap
listen = 127.0.0.1
base_dir = {place}/dovecot
state_dir = {place}/dovecot-state
log_path = /dev/stderr
info_log_path = /dev/null
default_internal_user = {user}
default_login_user = {user}
default_internal_group = {group}
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail/%u:INDEX=MEMORY
mail_uid = {user}
mail_gid = {group}
first_valid_uid = 1
first_valid_gid = 0
passdb {{
  driver = static
  args = nopassword=y
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={folder}/mail/%u
}}
service imap-login {{
  inet_listener imap {{
    address = 127.0.0.1
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
  chroot =
  process_min_avail = 1
  service_count = 0
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""


def write_mailbox(place: Path, *, messages: int, kib: int, seed: int) -> None:
    """Write a person's messages, with the ids ``100000`` and on, and Dovecot's list of them."""
    for name in ("cur", "new", "tmp"):
        (place / name).mkdir(parents=True)
    ids = [f"3 V1 N{FIRST_ID + messages} G00112233445566778899aabbccddeeff\n"]
    for number, value in values(keys=messages, value_bytes=kib << 10, seed=seed):
        starts = range(0, len(value), _LINE_BYTES)
        lines = b"\n".join(value[start : start + _LINE_BYTES] for start in starts)
        head = b"From: a@example.org\nSubject: Message %d\n\n" % number
        name = f"{number}.M1P1.host"
        (place / "cur" / f"{name}:2,S").write_bytes(head + lines + b"\n")
        ids.append(f"{FIRST_ID + number} :{name}\n")
    (place / "dovecot-uidlist").write_text("".join(ids), encoding="ascii")


def prepare(
    folder: Path, /, *, people: int = 8, messages: int = 4000, kib: int = 10, seed: int = 1
) -> None:
    """Write the mailboxes of people ``u0`` and so on below ``folder``."""
    for person in range(people):
        place = folder / "mail" / f"u{person}"
        write_mailbox(place, messages=messages, kib=kib, seed=seed + person)


def serve_command(folder: Path, place: Path, *, port: int) -> list[str]:
    """Return the command line of the server, and write its configuration into ``place``.

    Raises:
        SystemExit: If Dovecot is not installed.
    """
    path = place / "dovecot.conf"
    root = os.geteuid() == 0
    user = _USER if root else pwd.getpwuid(os.geteuid()).pw_name
    group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    text = _CONFIGURATION.format(place=place, folder=folder, port=port, user=user, group=group)
    path.write_text(text, encoding="utf-8")
    command = [needed("dovecot", _PACKAGE), "-F", "-c", str(path)]
    if not root:
        return command
    as_user = ["--reuid", user, "--regid", group, "--clear-groups"]
    caps = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
    return [needed("setpriv", "util-linux"), *as_user, *caps, *command]


def serve(folder: Path, /, *, ready: Path, port: int = 28143) -> None:
    """Replace this process by the server, once the messages are in memory."""
    command = serve_command(folder, ready.parent, port=port)
    for path in sorted((folder / "mail").glob("*/cur/*")):
        read_once(path)
    become_server(command, port=port, ready=ready)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
