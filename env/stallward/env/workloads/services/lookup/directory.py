"""An LDAP directory: people in OpenLDAP's memory-mapped database.

``prepare DIR --people N`` makes the database. ``serve DIR --socket PATH`` reads its file once, so
that its pages are in memory, and becomes slapd on that Unix socket. Whoever binds to nothing may
read everything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from stallward.env.workloads.command_line import become, run_program
from stallward.env.workloads.services.mapped_files import read_once
from stallward.env.workloads.services.programs import needed, run

_PACKAGE: Final = "slapd"
_DESCRIPTION_BYTES: Final = 600
_DATABASE_NAME: Final = "data.mdb"

_CONFIGURATION: Final = """\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
threads 4
sizelimit unlimited
database mdb
suffix "dc=s"
directory {folder}
maxsize 2147483648
dbnosync
index objectClass,uid eq
"""
_TOP: Final = """\
dn: dc=s
objectClass: dcObject
objectClass: organization
dc: s
o: shop

dn: ou=p,dc=s
objectClass: organizationalUnit
ou: p
"""


def entries(*, people: int, seed: int) -> Iterator[str]:
    """Generate the directory in LDIF; people have the ids ``0000000`` and on."""
    yield _TOP
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    for number in range(people):
        name = f"{number:07d}"
        text = rng.randbytes(_DESCRIPTION_BYTES // 2).hex()
        yield (
            f"\ndn: uid={name},ou=p,dc=s\nobjectClass: inetOrgPerson\nuid: {name}\n"
            f"cn: Person {name}\nsn: {name}\nmail: {name}@example.org\ndescription: {text}\n"
        )


def prepare(folder: Path, /, *, people: int = 200_000, seed: int = 1) -> None:
    """Make the configuration and the database below ``folder``.

    Raises:
        SystemExit: If OpenLDAP is not installed or fails.
    """
    (folder / "ldap").mkdir(parents=True, exist_ok=True)
    ldif = folder / "people.ldif"
    with ldif.open("w", encoding="ascii") as file:
        file.writelines(entries(people=people, seed=seed))
    configuration = _write_configuration(folder, folder)
    run([needed("slapadd", _PACKAGE), "-q", "-f", str(configuration), "-l", str(ldif)])
    ldif.unlink()


def _write_configuration(folder: Path, place: Path) -> Path:
    path = place / "slapd.conf"
    path.write_text(_CONFIGURATION.format(folder=folder / "ldap"), encoding="utf-8")
    return path


def serve_command(folder: Path, socket: Path) -> list[str]:
    """Return the command line of the server, and write its configuration beside the socket."""
    configuration = _write_configuration(folder, socket.parent)
    address = f"ldapi://{quote(str(socket), safe='')}"
    return [needed("slapd", _PACKAGE), "-h", address, "-f", str(configuration), "-d", "0"]


def serve(folder: Path, /, *, socket: Path) -> None:
    """Replace this process by the server, once its database is in memory."""
    command = serve_command(folder, socket)
    read_once(folder / "ldap" / _DATABASE_NAME)
    become(command)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
