"""The pods of one node from the Kubernetes API: a list, then a watch of what changes.

One request is open at a time. The list is made anew after a while, when the server has forgotten
the version that the watch goes on from (410 Gone), and after each failure, since events may have
been missed then. Pods that have ended are not asked for. The service account needs ``list`` and
``watch`` of pods.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import http.client
import threading
import time
import urllib.parse
from typing import Any, Final

from stallward.actuator.targets.config import KubernetesConfig
from stallward.kubernetes.errors import ApiError, ApiGoneError, ApiSilentError, PodsError
from stallward.kubernetes.items import Items, read_event
from stallward.kubernetes.pod import key_of, parse_pods, take_pod
from stallward.kubernetes.server import (
    CONNECT_S,
    FIRST_RETRY_S,
    Advice,
    ClusterServer,
    Retries,
    told_config,
)
from stallward.kubernetes.store import PodStore

_SILENT_S: Final = 90.0
"""A watch sends a bookmark about once a minute. One that is silent for longer may be dead without
saying so, so the list is made anew."""
_MOST_EVENT_BYTES: Final = 16 << 20
"""A pod has 1.5 MiB at most where the API server keeps it, and several times that as JSON."""
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The API server keeps pods that have ended by the thousand; a watch says that one has."""
_GONE: Final = 410
_SAID: Final = 200
"""At most so many characters of a server's message are said."""
_ADVICE: Final = Advice(
    statuses={
        401: "Look whether the token is that of the service account, and mounted.",
        403: "Let the service account list and watch pods (ClusterRole).",
    },
    certificate="Name the cluster's authority as ca under [kubernetes].",
)


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
        self._server = ClusterServer("The API server", server, config, _ADVICE)
        self._node = node
        self._retries = Retries(retry_s)
        self._silent_s = silent_s
        self._version = ""
        """The version that a watch goes on from."""

    @property
    def name(self) -> str:
        """What is asked, for people."""
        return self._server.name

    def run(self, store: PodStore, ended: threading.Event) -> None:
        """Follow the pods until ``ended``."""
        while not ended.is_set():
            try:
                self.look(store)
                listed_s = time.monotonic()
                while not ended.is_set() and self._left_s(listed_s) > 0.0:
                    self._watch(store, self._left_s(listed_s), ended)
                    self._retries.succeed()  # not before: a watch may be refused, unlike the list
            except ApiGoneError:
                ended.wait(self._retries.first_s)
            except (ApiError, PodsError) as error:
                self._retries.fail(error, store, ended)

    def _left_s(self, listed_s: float) -> float:
        return listed_s + self._config.resync_s - time.monotonic()

    def look(self, store: PodStore) -> None:
        """List all pods of the node.

        Raises:
            PodsError: If they cannot be listed.
        """

        def take(response: http.client.HTTPResponse) -> None:
            items = Items(response.read)
            store.replace(parse_pods({"items": items}, store.keys))
            self._version = _version_of(items.around)

        self._server.get(self._path_of_pods({}), CONNECT_S, take)

    def kubelet_config(self) -> Any:
        """Return what the node's kubelet is told, a KubeletConfiguration.

        The service account needs ``get`` of ``nodes/proxy``, a right that reaches much farther.

        Raises:
            PodsError: If it is not told.
        """
        node = urllib.parse.quote(self._node, safe="")
        return told_config(self._server, f"/api/v1/nodes/{node}/proxy/configz")

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
                    self._event(read_event(line), store)

        began_s = time.monotonic()
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(int(left_s), 1)),
        }
        try:
            self._server.get(self._path_of_pods(query), self._silent_s, take)
        except ApiSilentError as error:
            raise ApiGoneError("The watch was silent for too long.") from error
        if time.monotonic() - began_s < self._retries.first_s:
            ended.wait(
                self._retries.first_s
            )  # a server that ends each watch at once is not hammered

    def _event(self, event: Any, store: PodStore) -> None:
        kind = event.get("type") if isinstance(event, dict) else None
        value = event.get("object") if isinstance(event, dict) else None
        key = key_of(value)
        match kind:
            case "ADDED" | "MODIFIED" if key:
                store.put(take_pod(value, store.keys))
            case "DELETED" if key:
                store.remove(key)
            case "BOOKMARK":
                pass
            case "ERROR":
                if isinstance(value, dict) and value.get("code") == _GONE:
                    raise ApiGoneError("The version of the watch is forgotten.")
                raise ApiError(f"The API server ended the watch: {value!r:.{_SAID}}.")
            case _:
                raise ApiError(f"The API server sent an event that is none: {event!r:.80}.")
        self._version = _version_of(value) or self._version
        self._retries.succeed()

    def _path_of_pods(self, query: dict[str, str]) -> str:
        fields = {"fieldSelector": f"spec.nodeName={self._node},{_RUNNING}", **query}
        return f"/api/v1/pods?{urllib.parse.urlencode(fields)}"


def _version_of(value: Any) -> str:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
