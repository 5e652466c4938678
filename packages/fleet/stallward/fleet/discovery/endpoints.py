"""Nodes that are the endpoints of a Kubernetes Service, by its EndpointSlices.

The token is read anew for each lookup, because the kubelet replaces it. The service account needs
``list`` of ``endpointslices`` in the namespace, and nothing else.

Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from stallward.actuator.runtime.cluster_trust import cluster_context
from stallward.fleet.errors import DiscoveryError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the token, the authority and the namespace of a pod."""
_ANSWER_S: Final = 10.0
_MOST_BYTES: Final = 16 << 20
_PAGE: Final = 500
_SAID: Final = 200
_RIGHTS: Final = {
    401: "Look whether the token is that of a service account, and has not run out.",
    403: "Let the service account list endpointslices (discovery.k8s.io) in this namespace.",
    404: "Look whether the cluster has the API discovery.k8s.io/v1.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The Service of whose endpoints each is a node."""

    service: str
    """Its name."""
    namespace: str = ""
    """Its namespace; that of the pod in which this runs by default."""
    port: str = ""
    """The name or number of its port; needed if it has several."""
    server: str = ""
    """``https://HOST:PORT`` of the API; by default that of the cluster in which this runs."""
    token: Path = _ACCOUNT / "token"
    """The service account's token."""
    authority: Path = _ACCOUNT / "ca.crt"
    """The authority whose certificate the API must show, as PEM."""
    server_name: str = ""
    """The name in the nodes' certificates, where they are not for the addresses."""


def find_endpoints(config: ServiceConfig) -> dict[str, str]:
    """The addresses of the endpoints that are ready, by the names of their nodes.

    An endpoint has the name of its node; or that of its pod, where several are on one node.

    Raises:
        DiscoveryError: If they cannot be looked up.
    """
    found: dict[str, tuple[str, str]] = {}  # the address -> the names of node and pod
    for one in _slices(config):
        try:
            found |= dict(_ready(one, config))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DiscoveryError(
                f"An EndpointSlice of {config.service} cannot be understood ({error!r})."
            ) from error
    on_node = Counter(node for node, _ in found.values())
    return {
        (node if node and on_node[node] == 1 else pod or address): address
        for address, (node, pod) in sorted(found.items())
    }


def _ready(one: dict[str, Any], config: ServiceConfig) -> Iterator[tuple[str, tuple[str, str]]]:
    """The address, and the names of node and pod, of each endpoint that is ready."""
    ports = [
        int(port["port"])
        for port in one.get("ports") or ()
        if config.port in ("", port.get("name"), str(port.get("port")))
    ]
    if not one.get("endpoints"):
        return
    if len(ports) != 1:
        raise DiscoveryError(
            f"The service {config.service} has {len(ports)} ports of the name {config.port!r}.",
            next_step="Name one of its ports with port under [kubernetes].",
        )
    for endpoint in one["endpoints"]:
        if (endpoint.get("conditions") or {}).get("ready") is False:
            continue
        host = str(endpoint["addresses"][0])
        address = f"[{host}]:{ports[0]}" if ":" in host else f"{host}:{ports[0]}"
        pod = str((endpoint.get("targetRef") or {}).get("name") or "")
        yield address, (str(endpoint.get("nodeName") or ""), pod)


def _slices(config: ServiceConfig) -> Iterator[dict[str, Any]]:
    """All EndpointSlices of the service, page by page."""
    namespace = config.namespace or _text(config.token.parent / "namespace")
    server = config.server or _in_cluster()
    path = f"/apis/discovery.k8s.io/v1/namespaces/{urllib.parse.quote(namespace, '')}"
    query = {"labelSelector": f"kubernetes.io/service-name={config.service}", "limit": str(_PAGE)}
    while True:
        url = f"{server}{path}/endpointslices?{urllib.parse.urlencode(query)}"
        answer = _get(url, config)
        items, metadata = answer.get("items"), answer.get("metadata")
        if not isinstance(items, list) or not isinstance(metadata, dict):
            raise DiscoveryError(f"{server} gave no list of EndpointSlices.")
        yield from items
        if not metadata.get("continue"):
            return
        query["continue"] = str(metadata["continue"])


def _get(url: str, config: ServiceConfig) -> dict[str, Any]:
    if not url.startswith("https://"):
        raise DiscoveryError(
            f"{url} would send the token for everybody to read.",
            next_step="Write server = https://HOST:PORT.",
        )
    request = urllib.request.Request(  # noqa: S310 - it is https
        url,
        headers={"Authorization": f"Bearer {_text(config.token)}", "Accept": "application/json"},
    )
    try:
        context = cluster_context(config.authority)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _Here()
        )
        with opener.open(request, timeout=_ANSWER_S) as response:
            content = response.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        said = error.read(_SAID).decode(errors="replace")
        raise DiscoveryError(
            f"{url} answers {error.code} {error.reason}: {said}",
            next_step=_RIGHTS.get(error.code, ""),
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DiscoveryError(
            f"{url} cannot be asked: {reason}.",
            next_step="Look whether server, token and authority under [kubernetes] are right.",
        ) from error
    if len(content) > _MOST_BYTES:
        raise DiscoveryError(f"{url} answers more than {_MOST_BYTES >> 20} MiB.")
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise DiscoveryError(f"{url} answers no JSON ({error}).") from error
    return answer if isinstance(answer, dict) else {}


class _Here(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the token would go along."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _in_cluster() -> str:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{key}", "") for key in ("HOST", "PORT"))
    if not host:
        raise DiscoveryError(
            "This does not run in a Kubernetes cluster.",
            next_step="Write server = https://HOST:PORT under [kubernetes].",
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise DiscoveryError(
            f"{path} cannot be read ({error}).",
            next_step="Name the file of the service account under [kubernetes].",
        ) from error
