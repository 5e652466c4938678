"""Targets: sources of latencies other than lines, of work and of pods, and addresses."""

from __future__ import annotations

import io
import math
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from fuzz_mutations import Material
from fuzz_target import Target, sound, sound_signed
from fuzz_targets_kernel import sample
from fuzz_targets_wire import never_raises, text_of, typed

from stallward.actuator.errors import ConfigError, FramesError, WorkError
from stallward.actuator.latency.channel_source import spans_of
from stallward.actuator.latency.config import split_url
from stallward.actuator.latency.counts import LatencyCounts, Tally
from stallward.actuator.latency.feed import MAX_LATENCY_MS, Completed, Fault, pack, unpack
from stallward.actuator.latency.prometheus import http_get
from stallward.actuator.latency.prometheus.histogram import HistogramParser, masked
from stallward.actuator.latency.prometheus.http_get import ScrapeError
from stallward.actuator.latency.prometheus.increase import HistogramIncrease, Increase
from stallward.actuator.latency.prometheus.pod_address import PodAddress
from stallward.actuator.latency.prometheus.selector import parse_selector
from stallward.actuator.latency.statsd import StatsdFilter, StatsdLines
from stallward.actuator.latency.window import LatencyWindow
from stallward.actuator.runtime import waiting_messages
from stallward.actuator.runtime.addresses import parse_address
from stallward.actuator.targets import messages as pod_messages
from stallward.actuator.targets.kubelet_groups import Level, parse_group
from stallward.actuator.targets.selection import parse_selector as parse_label_selector
from stallward.actuator.work.counter import WorkCounter, WorkReport
from stallward.actuator.work.read_file import first_number
from stallward.agent.errors import SchemaError
from stallward.agent.sample import WorkFault
from stallward.kubernetes.errors import KubeletConfigError, PodsError
from stallward.kubernetes.identity import believed
from stallward.kubernetes.items import Items, read_event
from stallward.kubernetes.kubelet_findings import parse_file, settings_of, threshold_bytes
from stallward.kubernetes.pod import parse_pods, take_pod


def _statsd() -> Target:
    wanted = StatsdFilter(metric=b"app.request", tags=frozenset({b"env:prod"}), unit_ms=1e3)

    def run(content: bytes) -> Any:
        taken: list[tuple[float, float]] = []
        tally = Tally()

        def add(latency_ms: float, weight: float) -> bool:
            if not (0.0 <= latency_ms < MAX_LATENCY_MS and 0.0 < weight < math.inf):
                return False
            taken.append((latency_ms, weight))
            return True

        StatsdLines(wanted, tally, add).take(content)
        return tally.counts(), taken

    def check(content: bytes, value: Any) -> None:
        counts, taken = value
        assert 0 <= counts.malformed <= content.count(b"\n") + 1
        assert bool(counts.first_malformed) == bool(counts.malformed)
        assert counts.first_malformed.isprintable()
        assert not taken or b"app.request" in content
        for latency_ms, weight in taken:
            assert np.isfinite(latency_ms)
            assert 1.0 <= weight <= 1e3 * (1 + 1e-9)

    datagrams = (
        b"app.request:12.5|ms|@0.1|#env:prod,host:a\nother:1|c",
        b"app.request:0.5:0.25|d|#env:prod\napp.request:3|h|#env:prod",
        b"app.request:5664|ms:6176|ms|@0.5:6304:7|h|#env:prod",
        b"app.request,env=prod:12|ms\napp.request;env=prod:9|ms\napp.request[env=prod]:1|d",
        b"app.request,env=prod,url=http://a:80:12|ms\napp.request;env=prod;c=A::B:9|ms|@0.5",
        b"_e{5,4}:title|text\n_sc|check|0\napp.request:1e2|ms|#env:prod",
    )
    return never_raises("statsd", run, datagrams, check, values=(b"ms", b"@0.1", b"@nan"))


def _prometheus() -> tuple[Target, ...]:
    parser = HistogramParser(parse_selector('request_seconds{code=~"2.."}'))
    pages = sample("histogram.prom", "histogram-quoted.prom", "histogram-other.prom")
    # The time in the samples, just after their process started.
    wall_s = 1_700_000_001.0
    # A bucket that is not on the first page appears on the second.
    fewer = pages[0].replace(b'le="0.005"', b'le="0.01"')
    before = [
        parser.parse(page.replace(b" 250", b" 200").replace(b" 26", b" 21"))
        for page in (*pages, fewer)
    ]

    def run(content: bytes) -> Any:
        exposition = parser.parse(content)
        assert masked(exposition.first_bad).isprintable()
        deltas = []
        window = LatencyWindow(1.0)
        for page in before:
            increase = HistogramIncrease(unit_ms=1e3)
            increase.take(page, 1.0, wall_s)
            delta = increase.take(exposition, 2.0, wall_s + 1.0)
            if isinstance(delta, Increase):
                deltas.append(delta)
        for delta in deltas:
            if not delta.spans:
                continue
            spans = np.array(delta.spans, dtype=np.float64)
            frame = Completed(sent_s=2.0, spans=spans.tobytes(), total_ms=delta.total_ms)
            unpacked = unpack(pack(frame))
            assert isinstance(unpacked, Completed)
            window.add_spans(2.0, spans_of(unpacked), unpacked.total_ms)
        return deltas, window.sample(2.0)

    def check(content: bytes, value: Any) -> None:
        sound(content, value)
        deltas, summed = value
        for low, high, count in (span for delta in deltas for span in delta.spans):
            assert 0 <= low <= high <= MAX_LATENCY_MS
            assert count > 0
        if summed.completed:
            assert 0 <= summed.p95_ms <= summed.max_ms

    def selector(content: bytes) -> Any:
        parsed = parse_selector(text_of(content))
        parsed.matches({"code": "200"})
        return parsed

    return (
        never_raises("prometheus", run, pages, check, values=(b'le="+Inf"', b"{", b"}", b"...")),
        Target(
            name="prometheus-selector",
            run=selector,
            material=Material(
                samples=(
                    b'request_seconds{handler="/infer",code=~"2..|3..",a!=\'b\'}',
                    b"up",
                    b'{"http.server.duration","http.route"=~"/a.*",\'b\'!=`c`}',
                    b'request_seconds{"http.route"="\\u263a\\n"}',
                )
            ),
            errors=(ConfigError,),
            check=lambda _content, value: _assert(bool(value.name.encode())),
        ),
    )


class _Answering:
    """A server's bytes, as http_get reads them from a socket."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def settimeout(self, _timeout_s: float) -> None:
        pass

    def recv_into(self, buffer: memoryview) -> int:
        return self._content.readinto(buffer)


def _http() -> Target:
    def run(content: bytes) -> Any:
        connection = cast("socket.socket", _Answering(content))
        try:
            incoming = http_get._Incoming(connection, time.monotonic() + 60.0)
            return http_get._answer(incoming, "http://127.0.0.1:9100/metrics")
        except ScrapeError as error:
            return error.reason
        except http_get._FAULTS as error:
            return http_get._fault(error, 1.0).reason

    def check(content: bytes, answer: Any) -> None:
        if isinstance(answer, bytes):
            assert len(answer) <= len(content) + 1
        else:
            assert answer.isprintable()
            assert 0 < len(answer) < 800

    answers = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Encoding: Identity\r\n\r\nx 1\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nx 1\r\n1\r\n\n\r\n0\r\n\r\n",
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics/?token=a#b\r\n\r\n",
        b"HTTP/1.1 308 Moved\r\nLocation: https://u:p@[::1]:9/m\r\n\r\n",
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08",
        b"\x15\x03\x01\x00\x02\x02\x46",
    )
    return never_raises("http-answer", run, answers, check, values=(b"chunked", b"-1", b"gzip"))


def _assert(condition: bool) -> None:
    assert condition


def _latency_frames() -> Target:
    spans = np.array([[1.0, 1.0, 1.0], [2.0, 5.0, 3.5]]).tobytes()
    counts = LatencyCounts(refused=3, first_malformed="xx:0|ms", names=("a.b", "c"))
    frames = (
        pack(Completed(sent_s=5.0, spans=spans, total_ms=12.0, counts=LatencyCounts(malformed=1))),
        pack(Fault(sent_s=5.0, counts=counts, reason="refuses the connection")),
    )

    def run(content: bytes) -> Any:
        frame = unpack(content)
        return frame, spans_of(frame)

    def check(content: bytes, value: Any) -> None:
        frame, spans = value
        if isinstance(frame, Completed):
            sound_signed(b"", frame)
            assert unpack(pack(frame)) == frame
        assert np.isfinite(spans).all()
        window = LatencyWindow(1.0)
        if isinstance(frame, Completed) and frame.total_ms >= 0:
            window.add_spans(1.0, spans, frame.total_ms)
            sound(content, window.sample(1.0))

    return Target(
        name="latency-frames",
        run=run,
        material=Material(samples=frames),
        errors=(FramesError,),
        check=check,
    )


def _address(content: bytes) -> Any:
    address = parse_address(text_of(content), "listen")
    assert parse_address(str(address), "listen") == address
    return address


def _work_file() -> Target:
    def run(content: bytes) -> WorkCounter:
        counter = WorkCounter()
        for second, line in enumerate(text_of(content).splitlines()):
            try:
                counter.take({"": first_number(line)}, float(second))
            except WorkError as error:
                counter.miss(error.fault)
        return counter

    def check(content: bytes, value: WorkCounter) -> None:
        assert 0.0 <= value.units < math.inf
        assert 0.0 <= value.known_s <= len(text_of(content).splitlines())

    samples = (b"1\n2.5\n1e3\n7\nnan\n8\n", b"epoch 3, step 1.5e3 of 9000\nnone\n-1\n")
    return never_raises("work-counter", run, samples, check, values=(b"inf", b"1e400", b"-0"))


def _work_messages() -> Target:
    report = WorkReport(
        slot=1, sent_s=3.0, units=4.5, known_s=2.0, read_s=2.9, fault=WorkFault.FELL, detail="x"
    )
    return typed(
        "work-messages",
        partial(waiting_messages.unpack, WorkReport),
        (waiting_messages.pack(report),),
        (FramesError,),
        lambda _content, value: None,
    )


def _kubelet(content: bytes) -> int:
    settings = settings_of(parse_file(content, Path("config.yaml")), {}, "a file")
    return threshold_bytes(settings.hard, 1 << 34) + threshold_bytes(settings.soft, 1 << 34)


def _pods() -> tuple[Target, ...]:
    def selector(content: bytes) -> Any:
        parsed = parse_label_selector(text_of(content))
        parsed.matches({"app": "batch", "size": "12"})
        return parsed

    def listed(content: bytes) -> Any:
        return believed(parse_pods({"items": Items(io.BytesIO(content).read)}))

    def event(content: bytes) -> Any:
        value = read_event(content)
        return take_pod(value.get("object") if isinstance(value, dict) else value)

    def group(content: bytes, value: Any) -> None:
        if value is not None:
            assert value.name == "/".join(filter(None, text_of(content).split("/")))
            assert bool(value.uid) == (value.level in {Level.POD, Level.CONTAINER})

    pod = (
        b'{"metadata": {"uid": "a-1", "name": "b", "labels": {"app": "batch"}, '
        b'"ownerReferences": [{"kind": "Node"}], "annotations": {"kubernetes.io/config.hash": "a-2", '
        b'"kubernetes.io/config.mirror": "a-2"}}, '
        b'"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}, '
        b'"livenessProbe": {"timeoutSeconds": 3}, "startupProbe": {"periodSeconds": 2}}]}, '
        b'"status": {"qosClass": "Burstable", "podIP": "10.0.0.7", '
        b'"containerStatuses": [{"name": "b", "started": true}]}}'
    )
    bound = pod_messages.BoundPod(group="kubepods/pod1", pod="a/b")
    report = pod_messages.PodsReport(
        protected=(bound, None), slots=((), (bound, bound)), fault="down"
    )
    return (
        typed(
            "label-selector",
            selector,
            (b"app=batch,tier in (a, b),!pinned", b"a/b!=c,size>11,x notin (),y"),
            (SchemaError,),
            lambda _content, value: _assert(all(one.key for one in value.requirements)),
        ),
        typed("pods", listed, (b'{"items": [' + pod + b"]}",), (PodsError,), lambda *_: None),
        typed("pods-event", event, (b'{"object": ' + pod + b"}",), (PodsError,), lambda *_: None),
        typed(
            "pods-message",
            partial(waiting_messages.unpack, pod_messages.PodsReport),
            (pod_messages.pack(report),),
            (FramesError,),
            lambda *_: None,
        ),
        typed(
            "pod-address",
            partial(waiting_messages.unpack, PodAddress),
            (waiting_messages.pack(PodAddress(sent_s=1.5, uid="a-1", address="10.0.0.7")),),
            (FramesError,),
            lambda *_: None,
        ),
        typed(
            "kubelet-settings",
            _kubelet,
            (
                b"evictionHard:\n  memory.available: 5%\nfeatureGates: {MemoryQoS: true}\n",
                b'{"evictionSoft": {"memory.available": "1.5Gi"}, "evictionHard": null}',
            ),
            (KubeletConfigError,),
            lambda _content, value: _assert(value >= 0),
        ),
        never_raises(
            "kubelet-group",
            lambda content: parse_group(text_of(content)),
            (
                b"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa_1.slice",
                b"kubelet/kubepods/besteffort/podaa-1/9f3c",
            ),
            group,
        ),
    )


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    return (
        _statsd(),
        *_prometheus(),
        _http(),
        _latency_frames(),
        _work_file(),
        _work_messages(),
        *_pods(),
        typed(
            "address",
            _address,
            (b"127.0.0.1:9180", b"[::1]:9180", b"/run/x.sock", b"localhost:1"),
            (ConfigError,),
            sound,
        ),
        typed(
            "url",
            lambda content: split_url(text_of(content)),
            (b"http://127.0.0.1:9100/metrics", b"http://[::1]/m?x=1"),
            (ConfigError,),
            sound,
        ),
    )
