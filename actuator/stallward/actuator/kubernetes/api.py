"""The pods of one node from the Kubernetes API: a list, then a watch of what changes.

One request is open at a time. The list is made anew after a while, when the server has forgotten
the version that the watch goes on from (410 Gone), and after each failure, since events may have
been missed then. The service account needs ``list`` and ``watch`` of pods.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stallward.actuator.errors import ApiError, ApiGoneError, PodsError
from stallward.actuator.kubernetes.config import KubernetesConfig
from stallward.actuator.kubernetes.pod import parse_pod, parse_pods
from stallward.actuator.kubernetes.store import PodStore
from stallward.actuator.runtime.cluster_trust import cluster_context

_CONNECT_S: Final = 10.0
_SILENT_S: Final = 90.0
"""A watch sends a bookmark about once a minute. One that is silent for longer may be dead without
saying so, so the list is made anew."""
_MOST_LIST_BYTES: Final = 64 << 20
_MOST_EVENT_BYTES: Final = 4 << 20
FIRST_RETRY_S: Final = 0.5
MOST_RETRY_S: Final = 15.0
_GONE: Final = 410
_SAID: Final = 200
"""At most so many characters of a server's message are said."""
_RIGHTS: Final = {
    401: "Look whether the token is that of the service account, and mounted.",
    403: "Let the service account list and watch pods (ClusterRole).",
}


class ApiPods:
    """Follows the pods of one node.

    Args:
        config: The token, the authority and how often all are listed.
        server: The address, ``https://HOST:PORT``.
        node: The node's name.
        retry_s: How long to wait after the first failure; it doubles after each further one.
        silent_s: After how long without a word a watch is given up.
    """

    def __init__(
        self,
        config: KubernetesConfig,
        server: str,
        node: str,
        *,
        retry_s: float = FIRST_RETRY_S,
        silent_s: float = _SILENT_S,
    ) -> None:
        self._config = config
        self._server = server
        self._node = node
        self._retry_s = retry_s
        self._silent_s = silent_s
        self._version = ""
        """The version that a watch goes on from."""

    def run(self, store: PodStore, ended: threading.Event) -> None:
        """Follow the pods until ``ended``."""
        failures = 0
        while not ended.is_set():
            try:
                self.look(store)
                listed_s = time.monotonic()
                failures = 0
                while not ended.is_set() and self._left_s(listed_s) > 0.0:
                    self._watch(store, self._left_s(listed_s), ended)
            except ApiGoneError:
                ended.wait(self._retry_s)
            except (ApiError, PodsError) as error:
                store.fail(f"{error} What is known stays in force.")
                longest_s = min(self._retry_s * 2.0**failures, MOST_RETRY_S)
                failures += 1
                # The daemons of a cluster must not all come back at the same time.
                ended.wait(random.uniform(longest_s / 2.0, longest_s))  # noqa: S311

    def _left_s(self, listed_s: float) -> float:
        return listed_s + self._config.resync_s - time.monotonic()

    def look(self, store: PodStore) -> None:
        """List all pods of the node.

        Raises:
            PodsError: If they cannot be listed.
        """

        def take(response: http.client.HTTPResponse) -> None:
            content = response.read(_MOST_LIST_BYTES + 1)
            if len(content) > _MOST_LIST_BYTES:
                raise PodsError(f"The list of pods has more than {_MOST_LIST_BYTES >> 20} MiB.")
            value = _parsed(content)
            store.replace(parse_pods(value))
            self._version = _version_of(value)

        self._get(self._path_of_pods({}), _CONNECT_S, take)

    def kubelet_config(self) -> Any:
        """Return what the node's kubelet is told, a KubeletConfiguration.

        The service account needs ``get`` of ``nodes/proxy``, a right that reaches much farther.

        Raises:
            PodsError: If it is not told.
        """
        told: list[Any] = []

        def take(response: http.client.HTTPResponse) -> None:
            told.append(_parsed(response.read(_MOST_EVENT_BYTES)))

        node = urllib.parse.quote(self._node, safe="")
        self._get(f"/api/v1/nodes/{node}/proxy/configz", _CONNECT_S, take)
        config = told[0].get("kubeletconfig") if isinstance(told[0], dict) else None
        if not isinstance(config, dict):
            raise ApiError("The API server sent no settings of a kubelet.")
        return config

    def _watch(self, store: PodStore, left_s: float, ended: threading.Event) -> None:
        """Take the changes until the server ends the request.

        Raises:
            ApiGoneError: If the version is forgotten, or nothing was heard for too long.
        """

        def take(response: http.client.HTTPResponse) -> None:
            while not ended.is_set():
                line = response.readline(_MOST_EVENT_BYTES)
                if not line:
                    return
                if line.strip():
                    self._event(_parsed(line), store)

        began_s = time.monotonic()
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(int(left_s), 1)),
        }
        self._get(self._path_of_pods(query), self._silent_s, take, watches=True)
        if time.monotonic() - began_s < self._retry_s:
            ended.wait(self._retry_s)  # a server that ends each watch at once is not hammered

    def _event(self, event: Any, store: PodStore) -> None:
        kind = event.get("type") if isinstance(event, dict) else None
        value = event.get("object") if isinstance(event, dict) else None
        match kind:
            case "ADDED" | "MODIFIED":
                store.put(parse_pod(value))
            case "DELETED":
                store.remove(parse_pod(value).uid)
            case "BOOKMARK":
                pass
            case "ERROR":
                if isinstance(value, dict) and value.get("code") == _GONE:
                    raise ApiGoneError("The version of the watch is forgotten.")
                raise ApiError(f"The API server ended the watch: {value!r:.{_SAID}}.")
            case _:
                raise ApiError(f"The API server sent an event of no known type: {event!r:.80}.")
        self._version = _version_of(value) or self._version

    def _path_of_pods(self, query: dict[str, str]) -> str:
        fields = {"fieldSelector": f"spec.nodeName={self._node}", **query}
        return f"/api/v1/pods?{urllib.parse.urlencode(fields)}"

    def _get(
        self,
        path: str,
        timeout_s: float,
        take: Callable[[http.client.HTTPResponse], None],
        *,
        watches: bool = False,
    ) -> None:
        """Make one request, and have ``take`` read the answer.

        Raises:
            ApiError: If there is no answer that can be used.
        """
        try:
            connection = self._connection()
            with contextlib.closing(connection):
                connection.request("GET", path, headers=self._headers())
                if connection.sock is not None:
                    connection.sock.settimeout(timeout_s)
                response = connection.getresponse()
                if response.status != http.client.OK:
                    raise self._refused(response, watches=watches)
                take(response)
        except TimeoutError as error:
            if watches:
                raise ApiGoneError("The watch was silent for too long.") from error
            raise ApiError(f"The API server {self._server} does not answer.") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ApiError(f"The API server {self._server} cannot be used ({reason}).") from error

    def _connection(self) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self._server)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=_CONNECT_S)
        try:
            context = cluster_context(self._config.ca)
        except OSError as error:
            raise _unread(self._config.ca, error) from error
        return http.client.HTTPSConnection(
            host, parts.port or 443, timeout=_CONNECT_S, context=context
        )

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "stallward"}
        if self._server.startswith("https:"):  # a proxy on this machine has rights of its own
            # The kubelet replaces it before it ends.
            try:
                token = self._config.token.read_text().strip()
            except OSError as error:
                raise _unread(self._config.token, error) from error
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _refused(self, response: http.client.HTTPResponse, *, watches: bool) -> ApiError:
        said = response.read(4096).decode("utf-8", "replace")
        with contextlib.suppress(ValueError, AttributeError):
            said = json.loads(said).get("message", said)
        if watches and response.status == _GONE:
            return ApiGoneError("The version of the watch is forgotten.")
        return ApiError(
            f"The API server answers {response.status}: {said.strip()[:_SAID]}.",
            next_step=_RIGHTS.get(response.status, ""),
        )


def _unread(path: Path, error: OSError) -> ApiError:
    return ApiError(
        f"{path} cannot be read ({error.strerror or error}).",
        next_step="Let the pod of the daemon have the token of its service account.",
    )


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"The API server sent no JSON: {content[:80]!r}.") from error


def _version_of(value: Any) -> str:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
