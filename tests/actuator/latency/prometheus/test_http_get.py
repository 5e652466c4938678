"""Answers of all kinds: what is read, and what is said about the rest."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time

import pytest
from free_port import free_port
from hypothesis import given
from hypothesis import strategies as st
from prometheus_pages import Endpoint

from stallward.actuator.latency.prometheus import http_get as module
from stallward.actuator.latency.prometheus.http_get import ScrapeError, scrape

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nx 1\r\n1\r\n\n\r\n0\r\n\r\n"


GATHERED_TWICE = (
    b"An error has occurred while serving metrics:\n\n"
    b'collected metric "t_seconds" { label:<name:"user" value:"alice" > histogram:<...> }'
    b" was collected before with the same name and label values\n"
)
BUSY = b"Limit of concurrent requests reached (1), try again later.\n"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nx 1\nmore", b"x 1\n"),
        (b"HTTP/1.0 200 OK\r\n\r\nx 1\n", b"x 1\n"),
        (CHUNKED, b"x 1\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nx 1", b"x 1\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\n\r\nx 1\n", b"x 1\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: \r\n\r\nx 1\n", b"x 1\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding:,IDENTITY \r\n\r\nx 1\n", b"x 1\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nx 1\n", b"x 1\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx 1\n", b"x 1\n"),
        (b"HTTP/1.0 200 OK\r\n\r\nx 1", b"x 1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", r"status 204 \(No Content\)"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", r"answers with status 404 \(Not Found\)"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "status 503"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n", "status 503"),
        (b"HTTP/1.0 500 x\r\n\r\n" + GATHERED_TWICE, "500 .*: its client library cannot gather"),
        (b"HTTP/1.0 503 x\r\n\r\n" + BUSY, "503 .*: others scrape it at the same time"),
        (b"HTTP/1.1 799 Odd\r\n\r\n", "status 799"),
        (b"HTTP/1.1 401 x\r\n\r\n", "status 401 .*: it asks for a login"),
        (b"HTTP/1.1 403 x\r\n\r\n", "status 403 .*: it asks for a login"),
        (b"HTTP/1.1 302 Found\r\n\r\n", "answers with status 302"),
        (
            b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
            "speaks HTTPS only",
        ),
        (b"HTTP/1.0 400 Bad Request\r\n\r\nno", "status 400"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks HTTPS only"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx 1\n", "ends in the middle"),
        (CHUNKED[:-11], "ends in the middle"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "in the middle|not speak HTTP",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nx", r"answers compressed \(gzip\)"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: identity, br\r\n\r\nx", "answers compressed"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-9233720368547758\r\n",
            "does not speak HTTP",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 406 x\r\n\r\n", r"status 406 .*"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "does not speak HTTP"),
        (b"\x00\xff" * 40_000, "does not speak HTTP"),
        (b"", "closes the connection without an answer"),
    ],
)
def test_answers_of_all_kinds(endpoint: Endpoint, answer: bytes, outcome: bytes | str) -> None:
    endpoint.answer = answer
    if isinstance(outcome, bytes):
        assert scrape(endpoint.url, 5.0) == outcome
        assert endpoint.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")
        assert b"\r\nAccept-Encoding: identity\r\n" in endpoint.requests[0]
        assert b";q=0.5,text/plain;q=0.2,*/*;q=0.1\r\n" in endpoint.requests[0]
    else:
        with pytest.raises(ScrapeError, match=outcome):
            scrape(endpoint.url, 5.0)


def test_what_is_personal_in_a_refusal_is_not_shown(endpoint: Endpoint) -> None:
    endpoint.answer = b"HTTP/1.0 500 x\r\n\r\n" + GATHERED_TWICE
    with pytest.raises(ScrapeError) as caught:
        scrape(endpoint.url, 5.0)
    assert "alice" not in caught.value.reason
    assert "Open the page" in caught.value.next_step


def test_a_refusal_whose_body_does_not_come_is_still_a_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n")
                connection.recv(1)

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(ScrapeError, match="status 503"):
            scrape(url, 0.2)
        thread.join()


@given(st.binary(max_size=300))
def test_garbage_is_an_error_or_a_body(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\n" + answer)
        theirs.close()
        incoming = module._Incoming(ours, time.monotonic() + 5.0)
        try:
            body = module._answer(incoming, "http://127.0.0.1/")
        except (ScrapeError, http.client.HTTPException, ValueError):
            return
        assert isinstance(body, bytes)


def test_a_huge_answer_is_given_up(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 1 << 20)
    endpoint.answer = b"HTTP/1.0 200 OK\r\n\r\n" + b"x 1\n" * (1 << 19)
    with pytest.raises(ScrapeError, match="sends more than 1 MiB"):
        scrape(endpoint.url, 5.0)


def test_slow_and_absent_endpoints_end_in_time(endpoint: Endpoint) -> None:
    endpoint.pause_s = 10.0
    with pytest.raises(ScrapeError, match=r"does not answer within 0\.1 s"):
        scrape(endpoint.url, 0.1)
    with pytest.raises(ScrapeError, match="refuses the connection"):
        scrape(f"http://127.0.0.1:{free_port()}/", 1.0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "place", "step"),
    [
        ("/metrics/", "{base}/metrics/", 'url = "{base}/metrics/"'),
        ("metrics/", "{base}/metrics/", 'url = "{base}/metrics/"'),
        ("//other/m", "http://other/m", 'url = "http://other/m"'),
        ("http://u:p@127.0.0.1:9/m?token=secret#x", "http://127.0.0.1:9/m", "127.0.0.1:9/m"),
        ("https://127.0.0.1:9/metrics", "https://127.0.0.1:9/metrics", "plain HTTP"),
    ],
)
def test_a_redirection_names_the_place(
    endpoint: Endpoint, status: int, location: str, place: str, step: str
) -> None:
    endpoint.answer = f"HTTP/1.1 {status} x\r\nLocation: {location}\r\n\r\n".encode()
    with pytest.raises(ScrapeError) as raised:
        scrape(endpoint.url, 5.0)
    base = endpoint.url.removesuffix("/metrics")
    assert f"status {status}" in raised.value.cause
    assert raised.value.cause.endswith(place.format(base=base))
    assert step.format(base=base) in raised.value.next_step
    assert "secret" not in raised.value.reason
    assert "u:p" not in raised.value.reason


@pytest.mark.parametrize("location", [b"http://[", b"\xff\x1b[2J" * 99, b"", b"mailto:a"])
def test_a_redirection_to_nowhere_is_said(endpoint: Endpoint, location: bytes) -> None:
    endpoint.answer = b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\n\r\n"
    with pytest.raises(ScrapeError, match="answers with status 302") as raised:
        scrape(endpoint.url, 5.0)
    assert raised.value.reason.isprintable()
    assert len(raised.value.reason) < 700


def test_a_server_that_drips_ends_in_time(endpoint: Endpoint) -> None:
    endpoint.answer = b"HTTP/1.1 200 OK\r\n\r\n" + b"x 1\n" * 1000
    endpoint.drip_s = 0.01
    began_s = time.monotonic()
    with pytest.raises(ScrapeError, match=r"does not answer within 0\.2 s"):
        scrape(endpoint.url, 0.2)
    assert time.monotonic() - began_s < 5.0


def test_chunks_of_one_byte_end_in_time(endpoint: Endpoint) -> None:
    endpoint.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (
        1 << 20
    )
    with pytest.raises(ScrapeError, match=r"does not answer within 0\.2 s|in the middle"):
        scrape(endpoint.url, 0.2)


def test_compressed_bytes_that_are_called_plain_are_a_body(endpoint: Endpoint) -> None:
    data = gzip.compress(b"x 1\n", mtime=0)
    endpoint.answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + data
    assert scrape(endpoint.url, 5.0) == data, "what it is, the page's reader says"


def test_a_host_without_a_valid_name_cannot_be_looked_up() -> None:
    with pytest.raises(ScrapeError, match="no name that can be looked up"):
        scrape("http://" + "a" * 70 + "/metrics", 1.0)
