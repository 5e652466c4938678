"""Runs ordinary programs again and again, and writes down how each ended and whether it was right.

Every program is run as its package ships it, on inputs that are made once; so is the result that
each must have, by the same command without pressure. A line of the report is one JSON object: the
job, when it ended (CLOCK_MONOTONIC), how long it took, its exit status, the end of what it wrote
on standard error, and whether its result was right.

Run: ``python -m stallward.benchmarks.checked_jobs prepare FOLDER`` and
``... run FOLDER --scratch DIR --report PATH --seed N [--only NAME,...]``
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.server
import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from stallward.actuator.runtime.process_start import interpreter
from stallward.env.workloads.report import UnitReport

_MIB: Final = 1 << 20
_PAUSE_S: Final = 0.2
_CHUNK_BYTES: Final = 1 << 16
_SAID_BYTES: Final = 300
_TRIES: Final = 50
_RESULTS: Final = "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program, and how it is run. ``$IN`` has the inputs; it writes its result to ``$OUT``."""

    name: str
    program: str
    """The program that must be there."""
    script: str
    """What a shell runs, in an empty folder of its own."""


_READINTO: Final = """
import hashlib, os, sys
total, buffer = hashlib.sha256(), bytearray(150 << 20)
with open(os.environ["IN"] + "/data.bin", "rb", buffering=0) as file:
    view, filled = memoryview(buffer), 0
    while count := file.readinto(view[filled:]):
        filled += count
total.update(view[:filled])
open(os.environ["OUT"], "w").write(total.hexdigest())
"""
# Interrupted by a timer a hundred times a second, in system calls, too.
_SIGNALS: Final = """
import os, signal
caught = 0
def catch(*_):
    global caught
    caught += 1
signal.signal(signal.SIGALRM, catch)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
kept, total = [], 0
with open(os.environ["IN"] + "/data.bin", "rb") as file:
    while part := file.read(1 << 20):
        kept.append(part)
        total += sum(part[::4096])
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
open(os.environ["OUT"], "w").write(f"{len(kept)} {total} {caught > 0}")
"""
_JAVA: Final = """
import java.nio.file.*;
import java.util.*;
public class Words {
  public static void main(String[] a) throws Exception {
    TreeMap<String, Integer> counts = new TreeMap<>();
    for (String line : Files.readAllLines(Path.of(System.getenv("IN"), "words.txt")))
      counts.merge(line, 1, Integer::sum);
    Files.writeString(Path.of(System.getenv("OUT")), counts.toString());
  }
}
"""
_NODE: Final = """
const fs = require('fs'), crypto = require('crypto');
const lines = fs.readFileSync(process.env.IN + '/words.txt', 'utf8').split('\\n');
const counts = new Map();
for (const line of lines) counts.set(line, (counts.get(line) || 0) + 1);
const all = JSON.stringify([...counts].sort());
fs.writeFileSync(process.env.OUT, crypto.createHash('sha256').update(all).digest('hex'));
"""
_SQL: Final = """
CREATE TABLE t(a INTEGER, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
  INSERT INTO t SELECT i * 7919 % 200003, printf('%0200d', i) FROM n;
CREATE INDEX of_a ON t(a);
SELECT count(*), sum(a), max(b) FROM t WHERE a % 3 = 1;
"""

JOBS: Final = (
    Job(
        name="sort",
        program="sort",
        script='LC_ALL=C sort -S 150M --parallel=1 -o "$OUT" "$IN/lines.txt"',
    ),
    Job(
        name="tar",
        program="tar",
        script='tar --sort=name --mtime=@0 --owner=0 --group=0 -C "$IN" -cf "$OUT" tree',
    ),
    Job(name="gzip", program="gzip", script='gzip -1 -nc "$IN/text.bin" >"$OUT"'),
    Job(name="xz", program="xz", script='xz -T1 -6 -c "$IN/small.bin" >"$OUT"'),
    Job(name="zstd", program="zstd", script='zstd -q -T1 -4 --long=27 -c "$IN/text.bin" >"$OUT"'),
    Job(name="gcc", program="gcc", script='gcc -O1 -c "$IN/source.c" -o "$OUT"'),
    Job(
        name="git-gc",
        program="git",
        script='git clone -q --no-local --bare "$IN/repo.git" r 2>/dev/null; git -C r gc -q; '
        'git -C r fsck --full >/dev/null; git -C r rev-list --all --objects | sort >"$OUT"',
    ),
    Job(name="sqlite3", program="sqlite3", script='sqlite3 db <"$IN/work.sql" >"$OUT"'),
    Job(
        name="rsync",
        program="rsync",
        script='rsync -a "$IN/tree/" copy/; cat $(find copy -type f | LC_ALL=C sort) >"$OUT"',
    ),
    Job(
        name="dd",
        program="dd",
        script='dd if="$IN/data.bin" of="$OUT" bs=1M conv=fsync status=none',
    ),
    Job(
        name="dd-direct",
        program="dd",
        script='dd if="$IN/data.bin" of="$OUT" bs=1M iflag=direct oflag=direct status=none',
    ),
    Job(name="readinto", program="sh", script='"$PYTHON" "$IN/readinto.py"'),
    Job(name="signals", program="sh", script='"$PYTHON" "$IN/signals.py"'),
    Job(
        name="children",
        program="xargs",
        script='find "$IN/tree" -type f -print0 | LC_ALL=C sort -z | '
        "xargs -0 -n 40 -P 4 sha256sum | sed 's:/.*/tree/::' | LC_ALL=C sort >\"$OUT\"",
    ),
    Job(name="curl", program="curl", script='curl -sSf "$(cat "$URL")/data.bin" -o "$OUT"'),
    Job(name="java", program="java", script='java -Xmx96m "$IN/Words.java"'),
    Job(name="node", program="node", script='node "$IN/words.js"'),
)


def prepare(folder: Path) -> None:
    """Make the inputs, and the result that each job must have on them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = random.Random(7)  # noqa: S311 - the same inputs everywhere
    words = [f"{rng.getrandbits(40):x}" for _ in range(20000)]
    (folder / "data.bin").write_bytes(rng.randbytes(150 * _MIB))
    text = " ".join(rng.choices(words, k=2_000_000)).encode()
    (folder / "text.bin").write_bytes(text)
    (folder / "small.bin").write_bytes(text[:_MIB])
    lines = "\n".join(f"{rng.getrandbits(64):016x} {n:040d}" for n in range(1_600_000))
    (folder / "lines.txt").write_text(lines + "\n")
    (folder / "words.txt").write_text("\n".join(rng.choices(words, k=200_000)))
    (folder / "source.c").write_text(_c_source(120))
    for name, content in (
        ("readinto.py", _READINTO), ("signals.py", _SIGNALS), ("Words.java", _JAVA),
        ("words.js", _NODE), ("work.sql", _SQL),
    ):  # fmt: skip
        (folder / name).write_text(content)
    for number in range(400):
        file = folder / f"tree/{number % 20}/{number}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.randbytes(80_000))
    if shutil.which("git"):
        _make_repository(folder, rng)
    results = {}
    scratch = folder / "scratch"
    with served(folder) as url:
        for job in JOBS:
            if shutil.which(job.program) is not None:
                outcome = run_job(job, folder, scratch, url)
                if outcome["status"] == 0:
                    results[job.name] = outcome["digest"]
    shutil.rmtree(scratch, ignore_errors=True)
    (folder / _RESULTS).write_text(json.dumps(results))


def _c_source(functions: int) -> str:
    body = "for (int i = 0; i < n; i++) { s += (i * K) ^ (s >> 3); if (s & 1) s -= i; }"
    parts = [
        f"long f{n}(int n) {{ long s = {n}; {body.replace('K', str(n + 3))} return s; }}"
        for n in range(functions)
    ]
    return "\n".join(parts) + "\n"


def _make_repository(folder: Path, rng: random.Random) -> None:
    repository = folder / "repo.git"
    stream = []
    for number in range(150):
        content = rng.randbytes(30_000).hex()
        stream.append(
            f"commit refs/heads/main\ncommitter A <a@example.org> {1_700_000_000 + number} +0000\n"
            f"data 4\nnext\nM 100644 inline file{number % 30}\ndata {len(content)}\n{content}\n"
        )
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(repository)], check=True)
    subprocess.run(
        ["git", "-C", str(repository), "fast-import", "--quiet"],
        input="".join(stream).encode(),
        check=True,
    )


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback interface meanwhile; yields the address."""
    handler = partial(_QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def copyfile(self, *files: Any) -> None:
        """Send a file; a client that is ended with its block leaves it unread."""
        with contextlib.suppress(ConnectionError):
            super().copyfile(*files)


def run_job(job: Job, inputs: Path, scratch: Path, url: str) -> dict[str, object]:
    """Run one job; return how it ended, and the digest of its result."""
    shutil.rmtree(scratch, ignore_errors=True)
    work = scratch / "work"
    work.mkdir(parents=True)
    out, address = scratch / "out", scratch / "url"
    address.write_text(url)
    began_s = time.monotonic()
    done = subprocess.run(
        ["sh", "-ec", job.script],
        cwd=work,
        env={
            **os.environ,
            "IN": str(inputs),
            "OUT": str(out),
            "URL": str(address),
            "PYTHON": interpreter()[0],
            "HOME": str(scratch),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    ended_s = time.monotonic()
    return {
        "job": job.name,
        "ended_s": ended_s,
        "took_s": ended_s - began_s,
        "status": done.returncode,
        "said": done.stderr[-_SAID_BYTES:].decode(errors="replace").strip(),
        "digest": _digest(out),
    }


def _digest(path: Path) -> str:
    """The digest of a file; empty if there is none.

    This process is under pressure, too, and a read that fails is tried again: it is not its result
    that counts.
    """
    for _ in range(_TRIES):
        try:
            with path.open("rb") as file:
                digest = hashlib.sha256()
                while part := file.read(_CHUNK_BYTES):
                    digest.update(part)
                return digest.hexdigest()
        except FileNotFoundError:
            return ""
        except (OSError, MemoryError):
            time.sleep(_PAUSE_S)
    return ""


def run(options: argparse.Namespace) -> None:
    """Run the jobs in turn until this process is killed."""
    inputs, only = options.folder, frozenset(filter(None, options.only.split(",")))
    units = UnitReport(options.units)
    right = json.loads((inputs / _RESULTS).read_text())
    rng = random.Random(options.seed)  # noqa: S311 - the order of jobs
    jobs = [job for job in JOBS if job.name in right and (not only or job.name in only)]
    if not jobs:
        raise SystemExit("None of the jobs can run here.")
    while True:
        rng.shuffle(jobs)
        for job in jobs:
            outcome = run_job(job, inputs, options.scratch, options.url)
            digest = outcome.pop("digest")
            outcome["right"] = outcome["status"] == 0 and digest == right[job.name]
            with options.report.open("a") as file:
                file.write(json.dumps(outcome) + "\n")
            units.add(1)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--units", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.folder)
    else:
        run(options)


if __name__ == "__main__":
    main()
