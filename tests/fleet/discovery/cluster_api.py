"""A Kubernetes API that lists EndpointSlices, over HTTPS."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import trustme

TOKEN = "the-token"


def endpoint(address: str, node: str = "", pod: str = "", *, ready: bool | None = True) -> Any:
    made: dict[str, Any] = {"addresses": [address], "conditions": {"ready": ready}}
    if ready is None:
        made["conditions"] = {}
    if node:
        made["nodeName"] = node
    if pod:
        made["targetRef"] = {"kind": "Pod", "name": pod}
    return made


def endpoint_slice(*endpoints: Any, ports: tuple[tuple[str, int], ...] = (("grpc", 7443),)) -> Any:
    return {
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports],
    }


class ClusterApi:
    """The API, and the folder with the service account's token and authority.

    Args:
        folder: Where the token and the certificates are written.
    """

    def __init__(self, folder: Path) -> None:
        self.slices: list[Any] = []
        self.page = 500
        """How many slices it gives at once."""
        self.status = 200
        self.body: bytes | None = None
        """What it answers in place of a list."""
        self.asked: list[str] = []
        self.folder = folder
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.crt")
        (folder / "token").write_text(f"{TOKEN}\n")
        (folder / "namespace").write_text("edge")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def table(self, **keys: str) -> str:
        """The table of a fleet's file that names it."""
        all_keys = {
            "service": "stallward",
            "server": self.address,
            "token": str(self.folder / "token"),
            "authority": str(self.folder / "ca.crt"),
            **keys,
        }
        return "\n".join(
            ["[kubernetes]", *(f"{k} = {json.dumps(v)}" for k, v in all_keys.items())]
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, target: str, token: str) -> tuple[int, bytes]:
        self.asked.append(target)
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query))
        if token != f"Bearer {TOKEN}":
            return 401, b"Unauthorized"
        if self.body is not None or self.status != 200:
            return self.status, self.body or b"no"
        assert url.path == "/apis/discovery.k8s.io/v1/namespaces/edge/endpointslices"
        assert query["labelSelector"] == "kubernetes.io/service-name=stallward"
        start = int(query.get("continue", 0))
        end = start + self.page
        metadata = {"continue": str(end)} if end < len(self.slices) else {}
        answer = {"items": self.slices[start:end], "metadata": metadata}
        return 200, json.dumps(answer).encode()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = api._answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", f"{api.address}/elsewhere")
                kind = "application/json" if body.startswith((b"{", b"[")) else "text/plain"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
