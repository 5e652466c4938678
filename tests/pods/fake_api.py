"""An API server or a kubelet with pods: real HTTP and everything that can go wrong with it."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import ssl
import threading
import urllib.parse
from typing import Any


class FakeApi:
    """Serves pods, until :meth:`stop`.

    Args:
        tls: Makes the server speak HTTPS.
        port: The port; any that is free by default.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._tls = tls
        self._port = port
        self._changed = threading.Condition()
        self._pods: dict[str, dict[str, Any]] = {}
        self._events: list[tuple[int, str, dict[str, Any]]] = []
        self._version = 10
        self._oldest = 0
        self._connections: list[socket.socket] = []
        self._cuts = 0
        self._server: http.server.ThreadingHTTPServer | None = None
        self.status = 200
        """What is answered instead, with a message."""
        self.watch_status = 200
        """The same for watches alone."""
        self.kubelet: Any = None
        """What a node's kubelet is told; ``None`` if nobody has the right to ask."""
        self.requests: list[dict[str, str]] = []
        """The queries so far, with the token as ``Authorization``."""
        self.watches = 0
        """How many watches are open now."""

    @property
    def url(self) -> str:
        """The address."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> FakeApi:
        """Serve."""
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.answer(self)

            def log_message(self, *_args: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        server.daemon_threads = True
        self._port = server.server_address[1]
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(server.socket, server_side=True)
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Close everything; :meth:`start` serves at the same address again."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.drop()

    def drop(self) -> None:
        """Cut all connections."""
        with self._changed:
            connections, self._connections = self._connections, []
            self._cuts += 1
            self._changed.notify_all()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def put(self, value: dict[str, Any]) -> None:
        """Make a pod, or change it."""
        uid = value["metadata"]["uid"]
        self._tell("MODIFIED" if uid in self._pods else "ADDED", uid, value)

    def remove(self, uid: str) -> None:
        """Delete a pod."""
        self._tell("DELETED", uid, self._pods[uid])

    def say(self, kind: str, value: dict[str, Any]) -> None:
        """Send any event."""
        self._tell(kind, "", value)

    def forget(self, *, silently: bool = False) -> None:
        """Forget all versions so far, so that no watch can go on from them.

        Args:
            silently: Whether open watches are not told.
        """
        with self._changed:
            self._oldest = self._version = self._version + 1
            if not silently:
                gone = {"kind": "Status", "code": 410, "reason": "Expired"}
                self._events.append((self._version, "ERROR", gone))
            self._changed.notify_all()

    def _tell(self, kind: str, uid: str, value: dict[str, Any]) -> None:
        with self._changed:
            self._version += 1
            metadata = {**value.get("metadata", {}), "resourceVersion": str(self._version)}
            value = {**value, "metadata": metadata}
            if kind == "DELETED":
                del self._pods[uid]
            elif uid:
                self._pods[uid] = value
            self._events.append((self._version, kind, value))
            self._changed.notify_all()

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        parts = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        with self._changed:
            token = handler.headers["Authorization"] or ""
            self.requests.append({**query, "path": parts.path, "Authorization": token})
            self._connections.append(handler.connection)
        status = self.status
        if "watch" in query and status == 200:
            status = self.watch_status
        if status != 200:
            self._send(handler, status, {"kind": "Status", "message": "no, not you"})
        elif parts.path.endswith("/configz"):
            refused = {"kind": "Status", "message": "cannot get resource nodes/proxy"}
            told = self.kubelet is not None
            self._send(handler, 200 if told else 403, self.kubelet if told else refused)
        elif "watch" not in query:
            with self._changed:
                value = {
                    "kind": "PodList",
                    "metadata": {"resourceVersion": str(self._version)},
                    "items": list(self._pods.values()),
                }
            self._send(handler, 200, value)
        else:
            with contextlib.suppress(OSError):
                self._watch(handler, int(query["resourceVersion"]), int(query["timeoutSeconds"]))

    def _send(
        self, handler: http.server.BaseHTTPRequestHandler, status: int, value: dict[str, Any]
    ) -> None:
        body = json.dumps(value).encode()
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

    def _watch(
        self, handler: http.server.BaseHTTPRequestHandler, version: int, timeout_s: int
    ) -> None:
        if version < self._oldest:
            self._send(handler, 410, {"kind": "Status", "code": 410, "message": "too old"})
            return
        handler.send_response(200)
        handler.end_headers()
        with self._changed:
            self.watches += 1
            cuts = self._cuts
        try:
            while True:
                with self._changed:
                    due = [event for event in self._events if event[0] > version]
                    if self._cuts != cuts or (not due and not self._changed.wait(timeout_s)):
                        return
                for number, kind, value in due:
                    version = number
                    line = json.dumps({"type": kind, "object": value})
                    handler.wfile.write(f"{line}\n".encode())
                    handler.wfile.flush()
                    if kind == "ERROR":
                        return
        finally:
            with self._changed:
                self.watches -= 1
