"""The inputs of all findings of the fuzzer, each by its name: they stay fixed."""

from __future__ import annotations

import struct

import pytest
from fuzz_registry import targets
from fuzz_target import try_input

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of patterns that users write


def changed(name: str, old: str | bytes, new: str | bytes, sample: int = 0) -> bytes:
    """A sample of a target with one part of it replaced."""
    content = targets()[name].material.samples[sample]
    old, new = (part.encode() if isinstance(part, str) else part for part in (old, new))
    assert old in content, f"{old!r} is not in {name}"
    return content.replace(old, new, 1)


REFUSED: list[tuple[str, str, bytes]] = [
    ("cgroup-events", "pairs over the end of a line", b"populated frozen 0\n1\n"),
    ("cgroup-events", "a key twice", b"frozen 0\nfrozen 1\n"),
    (
        "process-stat-tree",
        "a start time of 5000 digits",
        changed("process-stat-tree", " 3905356 ", " " + "9" * 5000 + " "),
    ),
    (
        "process-stat-tree",
        "a parent that is no pid",
        changed("process-stat-tree", " S 21790 ", " S 4294967296 "),
    ),
    (
        "daemon-config",
        "a number of 5000 digits",
        changed("daemon-config", "seed = 4", "seed = " + "9" * 5000),
    ),
    (
        "daemon-config",
        "a hexadecimal number of 5000 digits",
        changed("daemon-config", "seed = 4", "seed = 0x" + "f" * 5000),
    ),
    (
        "daemon-config",
        "a float as a number beyond all floats",
        changed("daemon-config", "slo_ms = 60.0", "slo_ms = 1" + "0" * 400),
    ),
    (
        "daemon-config",
        "lists without end",
        changed("daemon-config", "pids = [", "pids = " + "[" * 20000),
    ),
    (
        "daemon-config",
        "NUL in a path",
        changed("daemon-config", "/run/stallward/journal", "/run/\\u0000"),
    ),
    (
        "daemon-config",
        "a list of huge numbers for a text",
        changed("daemon-config", 'zone = "edge"', "zone = [0x" + "f" * 5000 + "]"),
    ),
    (
        "daemon-config",
        "a name of a megabyte",
        changed(
            "daemon-config", 'group = "edge/training"', 'group = "edge/' + "a" * 1_000_000 + '"'
        ),
    ),
    ("scenario", "infinite swap", changed("scenario", "swap_mib = 2048", "swap_mib = 1e999")),
    (
        "scenario",
        "a limit that is no number",
        changed("scenario", "limit_mib = 600", "limit_mib = nan"),
    ),
    (
        "scenario",
        "memory beyond 64 bits",
        changed("scenario", "ample_mib = 4096", "ample_mib = 9223372036854775807"),
    ),
    (
        "scenario",
        "a number of 5000 digits",
        changed("scenario", "swap_mib = 2048", "swap_mib = " + "9" * 5000),
    ),
    (
        "scenario",
        "a repetition beyond all counts",
        changed("scenario", "[0-9.]+) (?P<ms>", "[0-9.]{99999999999}) (?P<ms>"),
    ),
    (
        "scenario",
        "digits of another script",
        changed("scenario", 'cpus = "0-1"', 'cpus = "\u0660-\u0661"'),
    ),
    (
        "record-plan",
        "an arm that is a number",
        changed("record-plan", 'arms = ["excite"]', "arms = [1.5]"),
    ),
    (
        "record-plan",
        "an unknown arm",
        changed("record-plan", 'arms = ["excite"]', 'arms = ["excited"]'),
    ),
    ("record-plan", "an unknown condition", changed("record-plan", '"ample"]', '"amPle"]')),
    (
        "record-plan",
        "a burn-in without end",
        changed("record-plan", "burn_in_s = 8.0", "burn_in_s = 1e999"),
    ),
    (
        "record-plan",
        "a scenario that is a number",
        changed(
            "record-plan", 'scenarios = ["detector-anon"]', "scenarios = [18446744073709551616]"
        ),
    ),
    ("record-plan", "no arm", changed("record-plan", 'arms = ["excite"]', 'arms = [""]')),
    (
        "journal-line-sealed",
        "a pid beyond 31 bits",
        b'{"kind":"stopped","op":"hold","pid":4294967296,"start_time_ticks":3905356}',
    ),
    (
        "journal-line-sealed",
        "a negative pid",
        b'{"kind":"oom","op":"hold","pid":-1,"start_time_ticks":1,"value":-500}',
    ),
    (
        "journal-line-sealed",
        "NUL in a path",
        b'{"kind":"frozen","op":"hold","path":"/sys/\\u0000"}',
    ),
    (
        "journal-line-sealed",
        "half a surrogate",
        b'{"kind":"file","op":"hold","path":"/sys/x","value":"\\ud800"}',
    ),
    ("journal-line-sealed", "a relative path", b'{"kind":"swap","op":"hold","path":"swap"}'),
    (
        "recording-run.json",
        "a size that is a fraction",
        changed("recording-run.json", '"sandbox_bytes": 629145600', '"sandbox_bytes": 1000.5'),
    ),
    (
        "recording-run.json",
        "a time that is no number",
        changed("recording-run.json", '"end_s": 104.0', '"end_s": NaN'),
    ),
    (
        "recording-run.json",
        "a quantile without end",
        changed("recording-run.json", '"quantile": 0.95', '"quantile": 1e999'),
    ),
    ("recording-run.json", "names that are none", changed("recording-run.json", '"a"', "null")),
    (
        "recording-run.json",
        "a number of 5000 digits",
        changed("recording-run.json", '"seed": 3', '"seed": ' + "9" * 5000),
    ),
    ("recording-run.json", "lists without end", b"[" * 50_000),
    (
        "recording-requests.parquet",
        "a column name that is no Unicode",
        changed("recording-requests.parquet", b"sojourn_us", b"soj\xefurn_us"),
    ),
    (
        "fitted-twin",
        "an infinite zone",
        changed("fitted-twin", '"zone_bytes": 629145600', '"zone_bytes": Infinity'),
    ),
    (
        "fitted-twin",
        "a size beyond 64 bits",
        changed("fitted-twin", '"swap_bytes": 2147483648', '"swap_bytes": 18446744073709551616'),
    ),
    (
        "fitted-twin",
        "a parameter that is a table",
        changed("fitted-twin", '"anon_weight": 1.0', '"anon_weight": {"a": 1}'),
    ),
    (
        "fitted-twin",
        "pages beyond all floats",
        changed("fitted-twin", '"anon_pages": 0.0', '"anon_pages": 1' + "0" * 400),
    ),
    (
        "fitted-twin",
        "a wrong range, without the file's name",
        changed("fitted-twin", '"read_pages_per_s": 250000.0', '"read_pages_per_s": 1.0'),
    ),
    (
        "policy-metadata",
        "a bound that is a table",
        changed("policy-metadata", "observation_low: [-1.0", "observation_low: [{}"),
    ),
    (
        "policy-metadata",
        "a bound beyond all floats",
        changed("policy-metadata", "observation_high: [3.0", "observation_high: [1e999"),
    ),
    (
        "policy-metadata",
        "numbers of partition that are a list",
        changed("policy-metadata", '{"margin_share": 0.1, "turn_s": 10.0}', "[]", sample=1),
    ),
    (
        "policy-metadata",
        "a number of partition beyond all floats",
        changed("policy-metadata", '"turn_s": 10.0', '"turn_s": 1e999', sample=1),
    ),
    (
        "policy-metadata",
        "a schema that is none",
        changed(
            "policy-metadata",
            "stallward.schema: {",
            "stallward.schema_hash: 0\nstallward.schema: [1]\nx: {",
        ),
    ),
    (
        "policy-metadata",
        "as many ticks as atoms",
        changed("policy-metadata", "ticks_per_action: 2", "ticks_per_action: 1" + "0" * 400),
    ),
    (
        "policy-metadata",
        "a provenance that is a list",
        changed("policy-metadata", 'provenance: {"seed": 1}', "provenance: [1]"),
    ),
    (
        "policy-metadata",
        "lists without end",
        changed("policy-metadata", "observation_low: ", "observation_low: " + "[" * 50_000),
    ),
    ("controller-spec", "a negative seed", b"excite:seed=-1"),
    ("controller-spec", "a limit beyond 64 bits", b"static:limit_mib=9007199254740993"),
    (
        "latency-frames",
        "a span of more requests than 64 bits hold",
        targets()["latency-frames"].material.samples[0][:-8] + b"\x7f" * 8,
    ),
    ("address", "NUL in a path", b"/run/x\0"),
    ("address", "a port of 5000 digits", b"127.0.0.1:" + b"9" * 5000),
    ("url", "a port in another script", "http://h:\u00b2/".encode()),
    ("scenario", "a key of 20,000 parts", b"a." * 20_000 + b"a = 1"),
    ("record-plan", "a key of 20,000 parts", b"a." * 20_000 + b"a = 1"),
    ("daemon-config", "a key of 20,000 parts", b"a." * 20_000 + b"a = 1"),
    (
        "scenario",
        "a group of a megabyte",
        changed("scenario", 'start = "at"', 'start = "' + "a" * 900_000 + '"'),
    ),
    (
        "recording-run.json",
        "half a surrogate for a key",
        changed("recording-run.json", '"disk"', '"\\ud800"'),
    ),
    (
        "latency-frames",
        "a sum that the requests cannot have",
        targets()["latency-frames"].material.samples[0][:-48]
        + struct.pack("<6d", 1, 1, 8e-320, 1, 1, 8e-320),
    ),
    (
        "fitted-twin",
        "a weight that is no number",
        changed("fitted-twin", '"weight": 0.5', '"weight": NaN'),
    ),
    (
        "fitted-twin",
        "a quantile of five",
        changed("fitted-twin", '"slo_quantile": 0.95', '"slo_quantile": 5'),
    ),
    ("arms", "NUL in a mark", b"none#\0"),
    ("result", "lists without end", b"[" * 100_000),
    (
        "mapping-kinds",
        "sizes whose sum is beyond 63 bits",
        b"0-5 r--p 0 e:0 4 /a\n\nRss: 999999999999999 kB\n" * 9999,
    ),
    (
        "diskstats",
        "sectors whose bytes are beyond 63 bits",
        b"4 0 sda 2 6 42244073709551615 7 0 4 1 0 0 0 0\n",
    ),
    ("diskstats", "NUL as a name", b"4 1 \0 9 4 4 7 0 4 1 0 0 0 0\n"),
]
UNDERSTOOD: list[tuple[str, str, bytes]] = [
    (
        "process-stat-used",
        "processor time beyond 64 bits",
        changed("process-stat-used", " 0 0 0 0 20 ", " 18446744073709551615 0 0 0 20 "),
    ),
    (
        "process-status",
        "a size beyond 64 bits",
        changed("process-status", "RssFile:\t", "RssFile:\t18446744073709551615 kB\nX: "),
    ),
    (
        "process-status",
        "a size on the next line",
        changed("process-status", "VmRSS:\t", "VmRSS:\n"),
    ),
    (
        "process-status",
        "a size that is there twice, once broken",
        changed("process-status", "VmRSS:", "VmRSS:\nVmRSS:"),
    ),
    (
        "meminfo",
        "more free swap than swap, in a container",
        changed("meminfo", "SwapFree:       ", "SwapFree: 18446744073709346016 kB\nX: "),
    ),
    (
        "io-stat",
        "devices without counters",
        b"7:7 7:6 7:5 rbytes=20 wbytes=3 rios=2 wios=0 dbytes=0 dios=0\n7:1 7:0 1:15 ",
    ),
    ("io-stat", "a device of a group that is being made", b"252:0 "),
    (
        "memory-stat-v1",
        "a negative size, printed without its sign",
        changed("memory-stat-v1", "total_rss ", "total_rss 18446744073709518848\nx "),
    ),
    ("process-maps", "a mapping of everything", b"0-ffffffffffffffff rw-p 00000000 00:00 0\n"),
    (
        "process-maps",
        "beyond all addresses",
        b"0-fffffffffffffffffffffffff rw-p 00000000 00:00 0\n",
    ),
    ("statsd", "a line of nothing but tags", b"|#"),
    ("latency-lines-pattern", "a group without a match", b"200 ms=\n"),
    ("latency-lines-pattern", "a line of 60 KB", b"9" * 60_000 + b"\n"),
    ("request-lines", "times that are not finite", b"nan 1 2 1\n1 inf 2 1\n1 1 1e999 1\n"),
    ("request-lines-pattern", "a latency beyond all floats", b"200 ms=" + b"9" * 400 + b"\n"),
    ("unit-lines", "times and work that are not finite", b"NaN 17\n1 inf\n2 3\n"),
    ("unit-lines", "work that goes back", b"1 5\n2 -7\n3 6\n"),
    ("keeper-messages", "no text", b"\x9e"),
    ("loop-messages", "no message", b"#"),
    ("btf", "a modifier of itself", changed("btf", b"\n\x02\0\0\0", b"\n\x03\0\0\0")),
    (
        "mounts",
        "a mount point that is too long",
        b"c /sys/fs/cgroup/" + b"4" * 300 + b" cgroup2 rw 0 0\n",
    ),
    (
        "prometheus",
        "a bucket of more requests than 64 bits hold",
        changed("prometheus", b'le="0.005"} 12', b'le="0.005"} 19223372036854775808'),
    ),
    (
        "http-answer",
        "a chunk of negative size",
        b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n-9233720368547758\r\n",
    ),
]


@pytest.mark.parametrize(
    ("target", "content"),
    [pytest.param(target, content, id=f"{target}: {what}") for target, what, content in REFUSED],
)
def test_bad_inputs_are_refused(target: str, content: bytes) -> None:
    assert not try_input(targets()[target], content)


@pytest.mark.parametrize(
    ("target", "content"),
    [
        pytest.param(target, content, id=f"{target}: {what}")
        for target, what, content in UNDERSTOOD
    ],
)
def test_odd_inputs_are_understood(target: str, content: bytes) -> None:
    assert try_input(targets()[target], content)
