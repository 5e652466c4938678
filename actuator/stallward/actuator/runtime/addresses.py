"""The addresses of sockets: ``HOST:PORT`` or the path of a Unix socket."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ConfigError

MAX_SOCKET_PATH_BYTES: Final = 107
"""A sockaddr_un holds 108 bytes with the final zero (unix(7))."""
_PLAIN: Final = frozenset(b"-./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~")
"""The bytes of a path that a URI holds as they are."""
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_REMOTE: Final = re.compile(r"[^/]+:\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a socket: a path, or else an IP address and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    @property
    def family(self) -> socket.AddressFamily:
        """The address family."""
        if self.path:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def bindable(self) -> str | tuple[str, int]:
        """The address as bind(2) takes it."""
        return self.path or (self.host, self.port)

    @property
    def is_local(self) -> bool:
        """Whether it can be reached from this machine only."""
        return bool(self.path) or is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}"


def is_remote(address: str) -> bool:
    """Whether an address is ``HOST:PORT``: a daemon on another machine."""
    return _REMOTE.fullmatch(address) is not None


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is a loopback address or ``localhost``."""
    if host == "localhost":
        return True
    if _is_ip(host, socket.AF_INET):
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    if _is_ip(host, socket.AF_INET6):
        return socket.inet_pton(socket.AF_INET6, host) == b"\0" * 15 + b"\1"
    return False


def check_socket_path(path: str, what: str) -> None:
    """Refuse a path that cannot be the address of a socket.

    Args:
        path: The path.
        what: What it is the path of, for messages.

    Raises:
        ConfigError: If it is too long or no path.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"{what} is {length} bytes long, at most {MAX_SOCKET_PATH_BYTES} fit into a "
            "socket address.",
            next_step="Choose a shorter path.",
        )
    if "\0" in path:
        raise ConfigError(f"{what} is {path!r}: no path holds a NUL.")


def grpc_target(path: Path, what: str = "The socket") -> str:
    """The address of a Unix socket as gRPC takes it, for server and client.

    gRPC reads it as a URI: it decodes ``%20``, ``?`` and ``#`` would end the path, and ``//``
    begins the name of a host. A client takes a comma, even an encoded one, for the end of an
    address.

    Args:
        path: The path.
        what: What it is the path of, for messages.

    Raises:
        ConfigError: If the path is too long for a socket's address, or holds a comma.
    """
    check_socket_path(str(path), what)
    if "," in str(path):
        raise ConfigError(
            f"{what} is {str(path)!r}: gRPC takes no comma in it.",
            next_step="Choose a path without one.",
        )
    name = os.fsencode(path)
    name = b"/" + name.lstrip(b"/") if name.startswith(b"/") else name
    return "unix:" + "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in name)


def parse_address(text: str, what: str) -> Address:
    """Parse an address.

    Args:
        text: ``127.0.0.1:9180``, ``[::1]:9180``, ``localhost:9180`` or ``/run/x.sock``.
        what: The key of the configuration that holds it, for messages.

    Raises:
        ConfigError: If ``text`` is not an address.
    """
    if text.startswith("/"):
        check_socket_path(text, what)
        return Address(path=text)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    host = "127.0.0.1" if host == "localhost" else host
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 1 << 16
    if not colon or not is_port or not any(_is_ip(host, f) for f in _FAMILIES):
        raise ConfigError(
            f"{what} is {text!r:.200}, not an address.",
            next_step="Write HOST:PORT, e.g. 127.0.0.1:9180, or the whole path of a Unix socket.",
        )
    return Address(host=host, port=int(port))


def _is_ip(host: str, family: socket.AddressFamily) -> bool:
    try:
        socket.inet_pton(family, host)
    except (OSError, ValueError):
        return False
    return True
