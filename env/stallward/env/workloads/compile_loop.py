"""Compiles C files one after the other, for ever; a unit is one function compiled.

``gcc -Q`` names each function when it is parsed and again when its code is written, so that
progress shows long before a file is done. Each naming is half a unit; a function that is
inlined everywhere is named once. A compilation that something terminates is lost and the next
one begins, as a build that keeps going does.

Run: ``python -m stallward.env.workloads.compile_loop --sources DIR --report PATH --scratch DIR``
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
from pathlib import Path

from stallward.env.workloads.report import UnitReport

_TERMINATED = b"signal terminated program"
"""What the gcc driver says when its compiler was killed; its own status is then 1."""
_NAMED = re.compile(rb" f[0-9]+(?= )")


def compile_one(source: Path, output: Path, report: UnitReport) -> None:
    """Compile one file and report its progress.

    Raises:
        SystemExit: If the compiler is missing or fails.
    """
    command = ["gcc", "-O1", "-Q", "-c", str(source), "-o", str(output)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0) as gcc:
        assert gcc.stderr is not None  # it was asked for
        tail = said = b""
        while chunk := gcc.stderr.read(4096):
            text = tail + chunk
            said = (said + chunk)[-4096:]
            named = _NAMED.findall(text)
            # A name may be cut in two; keep what follows the last whole one.
            cut = text.rfind(b" ")
            tail = text[cut:] if cut >= 0 else text
            report.add(len(named) / 2)
    if gcc.returncode > 0 and _TERMINATED not in said:
        sys.exit(f"gcc failed on {source} with status {gcc.returncode}")


def main() -> None:
    """Compile until killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    args = parser.parse_args()
    sources = sorted(args.sources.glob("*.c"))
    if not sources:
        sys.exit(f"no C file in {args.sources}")
    report = UnitReport(args.report)
    for source in itertools.cycle(sources):
        compile_one(source, args.scratch / "compiled.o", report)


if __name__ == "__main__":
    main()
