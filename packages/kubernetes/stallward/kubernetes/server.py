"""Requests to a server of the cluster, over TLS and with the token of the service account."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stallward.actuator.runtime.cluster_trust import cluster_context
from stallward.actuator.targets.config import KubernetesConfig
from stallward.agent.believed_file import read_believed
from stallward.agent.errors import UnbelievedFileError
from stallward.agent.printable import printable
from stallward.kubernetes.errors import ApiError, ApiGoneError, ApiSilentError
from stallward.kubernetes.items import parsed
from stallward.kubernetes.store import PodStore

CONNECT_S: Final = 10.0
FIRST_RETRY_S: Final = 0.5
_MOST_RETRY_S: Final = 15.0
_MOST_CONFIG_BYTES: Final = 4 << 20
_MOST_TOKEN_BYTES: Final = 1 << 16
_GONE: Final = 410
_KUBELET_PORT: Final = "10250"
_GIVE_ACCOUNT: Final = "Let the pod of the daemon have the token of its service account."
_SAID: Final = 200
"""At most so many characters of a server's message are said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do where a server refuses."""

    statuses: Mapping[int, str]
    """By the status of the answer."""
    certificate: str = ""
    """If its certificate is not of the authority."""


class Retries:
    """How long to wait after failures.

    Args:
        first_s: After the first one; it doubles after each further one.
    """

    def __init__(self, first_s: float) -> None:
        self.first_s = first_s
        self._longest_s = first_s

    def succeed(self) -> None:
        """The next failure is a first one."""
        self._longest_s = self.first_s

    def fail(self, error: Exception, store: PodStore, ended: threading.Event) -> None:
        """Tell the store of a failure, and wait."""
        store.fail(f"{error} What is known stays in force.")
        longest_s = self._longest_s
        self._longest_s = min(2.0 * longest_s, _MOST_RETRY_S)
        # The daemons of a cluster must not all come back at the same time.
        ended.wait(random.uniform(longest_s / 2.0, longest_s))  # noqa: S311


class ClusterServer:
    """A server of the cluster that is asked one thing at a time.

    Args:
        name: What it is, for people: with its address it names the server.
        address: ``https://HOST:PORT``.
        config: The token, the authority, and the name in the certificate.
        advice: What to do where it refuses.
    """

    def __init__(self, name: str, address: str, config: KubernetesConfig, advice: Advice) -> None:
        self._address = address
        self._config = config
        self._advice = advice
        self._kind = name
        self.name = f"{name} {address}"
        """What it is, and where."""

    def get(
        self, path: str, timeout_s: float, take: Callable[[http.client.HTTPResponse], None]
    ) -> None:
        """Make one request, and have ``take`` read the answer.

        Args:
            path: The path, with its query.
            timeout_s: After how long without a word the answer is given up.
            take: Reads the answer.

        Raises:
            ApiError: If there is no answer that can be used.
        """
        try:
            with contextlib.closing(self._connection()) as connection:
                connection.request("GET", path, headers=self._headers())
                if connection.sock is not None:
                    connection.sock.settimeout(timeout_s)
                response = connection.getresponse()
                if response.status != http.client.OK:
                    raise self._refused(response)
                take(response)
        except TimeoutError as error:
            raise ApiSilentError(f"{self.name} does not answer.") from error
        except ssl.SSLCertVerificationError as error:
            raise ApiError(
                f"{self.name} cannot be used ({error.strerror or error}).",
                next_step=self._advice.certificate,
            ) from error
        except (OSError, ValueError, http.client.HTTPException) as error:  # a name that is none
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ApiError(f"{self.name} cannot be used ({reason}).") from error

    def _connection(self) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self._address)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=CONNECT_S)
        try:
            context = cluster_context(self._config.ca)
        except UnbelievedFileError as error:
            raise ApiError(error.cause, next_step=error.next_step) from error
        except OSError as error:
            raise _unread(self._config.ca, error) from error
        return _Connection(host, parts.port or 443, context, self._config.server_name or host)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "stallward"}
        if self._address.startswith("https:"):  # a proxy on this machine has rights of its own
            # The kubelet replaces it before it ends.
            try:
                token = read_believed(self._config.token, _MOST_TOKEN_BYTES)
            except UnbelievedFileError as error:
                raise ApiError(error.cause, next_step=error.next_step) from error
            except OSError as error:
                raise _unread(self._config.token, error) from error
            text_of_token = token.decode("ascii", "replace").strip()
            if (
                not text_of_token.isascii() or not text_of_token.isprintable()
            ):  # a header would say all of it
                raise ApiError(f"{self._config.token} holds no token.", next_step=_GIVE_ACCOUNT)
            headers["Authorization"] = f"Bearer {text_of_token}"
        return headers

    def _refused(self, response: http.client.HTTPResponse) -> ApiError:
        if response.status == _GONE:
            return ApiGoneError("The version of the watch is forgotten.")
        said = response.read(4096).decode("utf-8", "replace")
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            said = str(json.loads(said).get("message", said))
        return ApiError(
            f"{self._kind} answers {response.status}: {printable(said.strip()[:_SAID])}.",
            next_step=self._advice.statuses.get(response.status, ""),
        )


class _Connection(http.client.HTTPSConnection):
    """A connection whose certificate may be for another name than the address."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=CONNECT_S, context=context)
        self._trust, self._name = context, name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=self._name)


def told_config(server: ClusterServer, path: str) -> Any:
    """Return the KubeletConfiguration that is told at a path.

    Raises:
        PodsError: If there is none.
    """
    told: list[Any] = []

    def take(response: http.client.HTTPResponse) -> None:
        told.append(parsed(response.read(_MOST_CONFIG_BYTES)))

    server.get(path, CONNECT_S, take)
    config = told[0].get("kubeletconfig") if isinstance(told[0], dict) else None
    if not isinstance(config, dict):
        raise ApiError(f"{server.name} sent no settings of a kubelet.")
    return config


def _unread(path: Path, error: OSError) -> ApiError:
    return ApiError(
        f"{path} cannot be read ({error.strerror or error}).",
        next_step=_GIVE_ACCOUNT,
    )


def server_of(config: KubernetesConfig, environment: Mapping[str, str]) -> str | None:
    """Return the address of the server that is asked; ``None`` where there is none."""
    if config.server is not None:
        return config.server
    if config.source == "kubelet":
        host, port = environment.get("NODE_IP", ""), _KUBELET_PORT
    else:
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    if not host:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
