"""A real control plane: etcd, the API server, and the controllers and the scheduler."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Final

import programs
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from node_space import API_ADDRESS, NAME, NodeSpace, wait_for

SERVER: Final = f"https://{API_ADDRESS}"
_ETCD: Final = "http://127.0.0.1:2379"


class ControlPlane:
    """The control plane of a node, and whatever is asked of it as its administrator.

    Args:
        space: The node that its processes run on.
    """

    def __init__(self, space: NodeSpace) -> None:
        self.space = space
        self._folder = space.folder / "control-plane"
        self._folder.mkdir()
        authority = trustme.CA()
        self.ca = self._folder / "ca.crt"
        authority.cert_pem.write_to_path(self.ca)
        server = authority.issue_cert(API_ADDRESS, "127.0.0.1", "localhost")
        server.private_key_pem.write_to_path(self._folder / "server.key")
        for pem in server.cert_chain_pems:
            pem.write_to_path(self._folder / "server.crt", append=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self._folder / "accounts.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        (self._folder / "tokens.csv").write_text(
            'admin-token,admin,1,"system:masters"\n'
            f'node-token,system:node:{NAME},2,"system:nodes"\n'
        )
        self.kubeconfig = self._write_kubeconfig("admin")
        self.node_kubeconfig = self._write_kubeconfig("node")

    def _write_kubeconfig(self, who: str) -> Path:
        path = self._folder / f"{who}.json"
        cluster = {"server": SERVER, "certificate-authority": str(self.ca)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": who, "user": {"token": f"{who}-token"}}],
            "contexts": [{"name": who, "context": {"cluster": "test", "user": who}}],
            "current-context": who,
        }
        path.write_text(json.dumps(content))
        return path

    def start(self) -> None:
        """Start everything, and wait until the API answers."""
        etcd = [f"--data-dir={self._folder / 'etcd'}", f"--listen-client-urls={_ETCD}"]
        self.space.start("etcd", programs.ETCD, *etcd, f"--advertise-client-urls={_ETCD}")
        self.start_api()
        for name, program in (
            ("controllers", programs.CONTROLLERS),
            ("scheduler", programs.SCHEDULER),
        ):
            words = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"]
            if program is programs.CONTROLLERS:
                words.append(f"--service-account-private-key-file={self._folder / 'accounts.key'}")
                words.append(f"--root-ca-file={self.ca}")
            self.space.start(name, program, *words)

    def start_api(self) -> None:
        """Start the API server, and wait until it answers."""
        folder = self._folder
        self.space.start(
            "api",
            programs.API_SERVER,
            f"--etcd-servers={_ETCD}",
            "--secure-port=443",
            f"--advertise-address={API_ADDRESS}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--tls-cert-file={folder / 'server.crt'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--endpoint-reconciler-type=none",
        )
        ready = wait_for(lambda: not self.space.runs("api") or self.is_ready())
        assert ready, self.space.log("api")
        assert self.space.runs("api"), self.space.log("api")

    def is_ready(self) -> bool:
        """Whether the API server says that it is ready."""
        return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"

    def end_api(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the API server, by default as a crash does."""
        self.space.end("api", number)

    def kubectl(self, *words: str, check: bool = True, timeout_s: float = 60.0) -> str:
        """Run kubectl as the administrator; return what it printed."""
        where = f"--kubeconfig={self.kubeconfig}"
        return self.space.run(programs.KUBECTL, where, *words, check=check, timeout_s=timeout_s)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Make objects, or change them."""
        path = self._folder / "objects.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        self.kubectl("apply", "-f", str(path))

    def get(self, *words: str) -> Any:
        """What `kubectl get` has of an object or several."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))
