"""Nodes that are the endpoints of a Kubernetes Service, by its EndpointSlices.

The cluster is reached as ``kubectl`` reaches it, by a kubeconfig with its contexts and exec plug-ins;
or by the service account of the pod in which this runs; or by a server, a token and an authority that
are written down. Whoever asks needs ``list`` of ``endpointslices`` in the namespace, and nothing else.

Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import lightkube
import yaml
from lightkube import KubeConfig, SingleConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.models import Cluster, NameValue, User
from lightkube.generic_resource import create_namespaced_resource

from stallward.actuator.runtime.cluster_trust import cluster_context
from stallward.agent.believed_file import read_believed
from stallward.fleet.discovery.config import ServiceConfig
from stallward.fleet.errors import DiscoveryError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the token, the authority and the namespace of a pod."""
_KUBECONFIG: Final = "~/.kube/config"
_MOST_BYTES: Final = 16 << 20
"""The largest kubeconfig."""
_PAGE: Final = 500
_SAID: Final = 200
_RIGHTS: Final = {
    401: "Look whether the token or the user is known to the cluster, and has not run out.",
    403: "Let the user or the service account list endpointslices (discovery.k8s.io) in this "
    "namespace.",
    404: "Look whether the cluster has the API discovery.k8s.io/v1.",
}
_LOOK: Final = "Look whether what [kubernetes] names is right."


def find_endpoints(config: ServiceConfig) -> dict[str, str]:
    """The addresses of the endpoints that are ready, by the names of their nodes.

    An endpoint has the name of its node; or that of its pod, where several are on one node. A pod
    with an IPv4 and an IPv6 address is one endpoint, at the former.

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
    pods: dict[tuple[str, str], str] = {}
    for address, (node, pod) in sorted(found.items()):  # "[" of IPv6 is behind all digits
        pods.setdefault((node, pod or address), address)
    on_node = Counter(node for node, _ in pods)
    return {
        (node if node and on_node[node] == 1 else pod): address
        for (node, pod), address in pods.items()
    }


def _ready(one: dict[str, Any], config: ServiceConfig) -> Iterator[tuple[str, tuple[str, str]]]:
    """The address, and the names of node and pod, of each endpoint that is ready."""
    ports = [
        int(port["port"])
        for port in one.get("ports") or ()
        if config.port in ("", port.get("name"), str(port.get("port")))
    ]
    ready = [
        endpoint
        for endpoint in one.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
    if not ready:  # pods of an older release, on nodes that are down, may lack the port
        return
    if len(ports) != 1:
        raise DiscoveryError(
            f"The service {config.service} has {len(ports)} ports of the name {config.port!r}.",
            next_step="Name one of its ports with port under [kubernetes].",
        )
    for endpoint in ready:
        host = str(endpoint["addresses"][0])
        address = f"[{host}]:{ports[0]}" if ":" in host else f"{host}:{ports[0]}"
        pod = str((endpoint.get("targetRef") or {}).get("name") or "")
        yield address, (str(endpoint.get("nodeName") or ""), pod)


def _slices(config: ServiceConfig) -> Iterator[dict[str, Any]]:
    """All EndpointSlices of the service, page by page."""
    cluster, transport = _connection(config)
    server = cluster.cluster.server
    kind = create_namespaced_resource(
        "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", verbs=["list"]
    )
    labels: Any = {"kubernetes.io/service-name": config.service}
    try:
        with lightkube.Client(cluster, transport=transport, trust_env=False) as client:
            yield from client.list(
                kind,
                namespace=config.namespace or cluster.namespace,
                labels=labels,
                chunk_size=_PAGE,
            )
    except httpx2.HTTPStatusError as error:
        answer = error.response
        said = error.status.message if isinstance(error, lightkube.ApiError) else answer.text
        raise DiscoveryError(
            f"{server} answers {answer.status_code} {answer.reason_phrase}: {str(said)[:_SAID]}",
            next_step=_RIGHTS.get(answer.status_code, ""),
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, lightkube.ConfigError, OSError) as error:
        raise DiscoveryError(f"{server} cannot be asked: {error}.", next_step=_LOOK) from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:  # what an exec plug-in printed
        raise DiscoveryError(
            f"{server} cannot be asked, because there is no token ({error!r}).",
            next_step="Look whether the kubeconfig's plug-in prints an ExecCredential.",
        ) from error
    except ValueError as error:
        raise DiscoveryError(f"{server} gave no list of EndpointSlices ({error}).") from error


def _connection(config: ServiceConfig) -> tuple[SingleConfig, Any]:
    """How the cluster is reached: server and user, and what checks the server's certificate.

    Raises:
        DiscoveryError: If that is not known.
        UnbelievedFileError: If others than root can have written a file that root is to believe.
    """
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
    if config.by_hand or (in_cluster and not config.by_kubeconfig):
        cluster, context = _by_hand(config)
        proxy = None
    else:
        cluster, context = _by_kubeconfig(config)
        proxy = _proxy(cluster.cluster.server)
    if not cluster.cluster.server.startswith("https://"):
        raise DiscoveryError(
            f"{cluster.cluster.server} would send the token for everybody to read.",
            next_step="Write server = https://HOST:PORT.",
        )
    return cluster, httpx2.HTTPTransport(verify=context, trust_env=False, proxy=proxy)


def _by_hand(config: ServiceConfig) -> tuple[SingleConfig, ssl.SSLContext]:
    """The server, the token and the authority that are written down, or are those of the pod."""
    token = config.token or _ACCOUNT / "token"
    authority = config.authority or _ACCOUNT / "ca.crt"
    namespace = config.namespace or _text(token.parent / "namespace")
    server = config.server or _in_cluster()
    try:
        context = cluster_context(authority)
    except (OSError, ValueError) as error:
        raise DiscoveryError(
            f"{authority} cannot be used as the authority of {server} ({error}).", next_step=_LOOK
        ) from error
    # Read at each lookup, because the kubelet replaces it.
    user = User(token=_text(token))
    cluster = Cluster(server=server, certificate_auth=str(authority))
    made = KubeConfig.from_one(cluster=cluster, user=user, namespace=namespace).get()
    assert made is not None
    return made, context


def _by_kubeconfig(config: ServiceConfig) -> tuple[SingleConfig, ssl.SSLContext]:
    """The server and the user of a context of the operator's kubeconfig."""
    path = config.kubeconfig or Path(os.environ.get("KUBECONFIG") or _KUBECONFIG).expanduser()
    try:
        # A plug-in that it names is run.
        content = read_believed(path, _MOST_BYTES)
    except OSError as error:
        raise DiscoveryError(
            f"{path} cannot be read ({error.strerror}), and this does not run in a Kubernetes "
            "cluster.",
            next_step="Name one file with kubeconfig under [kubernetes], or write server = "
            "https://HOST:PORT.",
        ) from error
    try:
        found = KubeConfig.from_dict(yaml.safe_load(content), path).get(config.context or None)
        assert found is not None
        made = found._replace(user=_completed(found.user or User(), found))
        assert made.user is not None
        context = verify_cluster(made.cluster, made.user, made.abs_file)
    except Exception as error:  # whatever the libraries make of a file that is not as it should be
        said = " ".join(str(error).split()) or repr(error)
        raise DiscoveryError(
            f"{path} cannot be used as a kubeconfig: {said}.",
            next_step="Look whether kubectl can use it.",
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as cluster_context says
    return made, context


def _completed(user: User, cluster: SingleConfig) -> User:
    """Do what lightkube 1.0 leaves out of a user: paths beside the file, and newer plug-ins."""
    if user.token_file is not None:
        user.token_file = str(cluster.abs_file(user.token_file))
    if user.exec is not None:
        if "/" in user.exec.command:
            user.exec.command = str(cluster.abs_file(user.exec.command))
        version = user.exec.apiVersion
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        told = NameValue("KUBERNETES_EXEC_INFO", json.dumps(asked))
        user.exec.env = [*(user.exec.env or ()), told]
        if version == "client.authentication.k8s.io/v1":  # whose tokens are those of v1beta1
            user.exec.apiVersion = "client.authentication.k8s.io/v1beta1"
    return user


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for a server, as kubectl takes it."""
    url = urllib.parse.urlsplit(server)
    if urllib.request.proxy_bypass(url.hostname or ""):
        return None
    return urllib.request.getproxies().get("https")


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
