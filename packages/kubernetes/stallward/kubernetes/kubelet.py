"""The pods of one node from its own kubelet, so that no node need list the pods of the others.

The kubelet answers with all of them at once and has no watch, so it is asked again and again. It
lists the static pods themselves, by the UIDs of their groups, in place of their mirror pods: no
annotation is needed to find a group. The service account needs ``get`` of ``nodes/pods``, before
Kubernetes 1.33 of ``nodes/proxy``.

Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
"""

from __future__ import annotations

import http.client
import threading
import time
from typing import Any, Final

from stallward.actuator.targets.config import KubernetesConfig
from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.items import Items
from stallward.kubernetes.pod import parse_pods
from stallward.kubernetes.server import (
    CONNECT_S,
    FIRST_RETRY_S,
    Advice,
    ClusterServer,
    Retries,
    told_config,
)
from stallward.kubernetes.store import PodStore

PERIOD_S: Final = 2.0
"""How often it is asked. It makes the list of what it has in memory."""
_ADVICE: Final = Advice(
    statuses={
        401: "Look whether the token is that of the service account, and whether the kubelet takes "
        "such tokens (authentication.webhook.enabled).",
        403: "Let the service account get nodes/pods, or nodes/proxy where the kubelet is older "
        "than 1.33 (ClusterRole).",
    },
    certificate="Let the kubelet have a certificate of the cluster's authority "
    "(serverTLSBootstrap), or name the file of its own as ca, and its name as server_name, under "
    "[kubernetes].",
)


class KubeletPods:
    """Asks the node's kubelet for its pods.

    Args:
        config: The token, the authority, and the name in the kubelet's certificate.
        server: The address, ``https://HOST:10250``.
        period_s: How often it is asked.
        retry_s: How long to wait after the first failure; it doubles after each further one.
    """

    def __init__(
        self,
        config: KubernetesConfig,
        server: str,
        *,
        period_s: float = PERIOD_S,
        retry_s: float = FIRST_RETRY_S,
    ) -> None:
        self._server = ClusterServer("The kubelet", server, config, _ADVICE)
        self._period_s = period_s
        self._retries = Retries(retry_s)

    @property
    def name(self) -> str:
        """What is asked, for people."""
        return self._server.name

    def run(self, store: PodStore, ended: threading.Event) -> None:
        """Follow the pods until ``ended``."""
        while not ended.is_set():
            try:
                began_s = time.monotonic()
                self.look(store)
                self._retries.succeed()
                # However long a list tenants make, reading it takes a fifth of a processor at most.
                ended.wait(max(self._period_s, 4.0 * (time.monotonic() - began_s)))
            except PodsError as error:
                self._retries.fail(error, store, ended)

    def look(self, store: PodStore) -> None:
        """Ask once.

        Raises:
            PodsError: If it does not say.
        """

        def take(response: http.client.HTTPResponse) -> None:
            store.replace(parse_pods({"items": Items(response.read)}, store.keys))

        self._server.get("/pods", CONNECT_S, take)

    def kubelet_config(self) -> Any:
        """Return what the kubelet is told, a KubeletConfiguration.

        The service account needs ``get`` of ``nodes/configz``.

        Raises:
            PodsError: If it is not told.
        """
        return told_config(self._server, "/configz")
