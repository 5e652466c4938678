"""What the experiments of the latd thesis run: a detector, and hogs of memory beside it.

The thesis has a machine of 16 GB with YOLOv3, which reads its weights and images of 100 to 200 KB
through the page cache. Here the zone has 640 MiB, a 26th of that, and the detector of the shipped
scenarios reads images of 147 KiB and maps 156 MiB of weights. One image is worked on at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stallward.env.scenario.scenario import (
    BackgroundSpec,
    Command,
    DiskLimit,
    LatencyLines,
    Need,
    Phase,
    ProtectedSpec,
    SandboxSpec,
    Scenario,
    Slo,
    UnitLines,
)

Hog = Literal["anon-once", "anon-again", "file-once", "file-again"]

MIB: Final = 1 << 20
ZONE_MIB: Final = 640
DETECTOR_MIB: Final = 184
"""What the detector holds without its images: 28 MiB of anonymous memory, and the weights."""
SHORT: Final = 1.1
"""What detector and hog want together where memory is short, as a share of it. The thesis has 99 %
of memory in use, and so has a zone of which more is wanted than there is."""
ENDLESS: Final = 3.0
"""The same with the hog of its listing, which allocates without end: this is where it is when the
run ends, with most of it in swap."""
BURN_IN_S: Final = 8.0
"""How long the detector runs before the hog starts and the measurement begins."""
MEASURED_S: Final = 20.0
SLO_MS: Final = 100.0
"""A target must be configured; no controller of the experiments looks at it."""
_IMAGES: Final = 150
_IMAGES_PER_S: Final = 20
_BLOCK_MIB: Final = 4
"""The 100 MB that the hog of the thesis allocates at a time, of 640 MiB in place of 16 GB."""
_FILL_MIB_PER_S: Final = 100
"""How fast memory is filled that is touched once."""
_AGAIN_MIB_PER_S: Final = 700
"""How fast memory is touched that is touched again and again."""
_SWAP_MIB: Final = 2048
_SMALL_SWAP_MIB: Final = ZONE_MIB // 8
_FULL: Final = 0.99
"""The most of memory and small swap that both want together: with more, the kernel kills."""
_HOG_FILE: Final = "{data}/hog.bin"
_COMMANDS: Final[dict[Hog, tuple[str, ...]]] = {
    "anon-once": ("anon_once", "--block", str(_BLOCK_MIB)),
    "anon-again": ("anon", "--order", "scan"),
    "file-once": ("file_once", "--file", _HOG_FILE),
    "file-again": ("file_loop", "--file", _HOG_FILE, "--order", "scan"),
}
_MIB_PER_S: Final[dict[Hog, int]] = {
    "anon-once": _FILL_MIB_PER_S,
    "anon-again": _AGAIN_MIB_PER_S,
    "file-once": _FILL_MIB_PER_S,
    "file-again": _AGAIN_MIB_PER_S,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that the experiments run on, as far as it can be chosen."""

    disk_ops_per_s: int | None = None
    """How many operations a second the disk does; ``None`` leaves it as it is."""
    small_swap: bool = False
    """Whether swap is an eighth of the memory and hogs fill it, as fast as they can. The listing
    of the thesis ends its hog when 99.9 % of swap are used. Otherwise swap is large, and hogs have
    a rate."""

    def wanted_share(self, hog: Hog, utilisation: float) -> float:
        """What detector and hog want together, as a share of the memory, with small swap of both.

        Only anonymous memory goes to swap, so only hogs of it fill that.
        """
        return min(utilisation, _FULL) if self.small_swap and _in_swap(hog) else utilisation

    def hog_mib(self, hog: Hog, utilisation: float) -> int:
        """The size of the hog with which both want that share."""
        room = ZONE_MIB + (_SMALL_SWAP_MIB if self.small_swap and _in_swap(hog) else 0)
        return round(self.wanted_share(hog, utilisation) * room) - DETECTOR_MIB


USUAL: Final = Machine()


def _in_swap(hog: Hog) -> bool:
    return hog.startswith("anon")


def hog_scenario(hog: Hog, utilisation: float, machine: Machine = USUAL) -> Scenario:
    """The detector beside one hog, which starts when the burn-in ends.

    Args:
        hog: The kind of hog.
        utilisation: How much both want together, as a share of the zone's memory.
        machine: What it runs on.
    """
    ops = machine.disk_ops_per_s
    return Scenario(
        name=f"latd-{hog}-{100 * utilisation:.0f}",
        summary=f"detector beside the hog {hog}, {100 * utilisation:.0f} % of the memory wanted",
        sandbox=SandboxSpec(
            limit_bytes=ZONE_MIB * MIB,
            ample_bytes=4 * ZONE_MIB * MIB,
            swap_bytes=(_SMALL_SWAP_MIB if machine.small_swap else _SWAP_MIB) * MIB,
            disk=None if ops is None else DiskLimit(ops_per_s=ops),
        ),
        protected=_DETECTOR,
        background=(_background(hog, utilisation, machine),),
        needs=_NEEDS,
        application="detector",
    )


def _background(hog: Hog, utilisation: float, machine: Machine) -> BackgroundSpec:
    program, *options = _COMMANDS[hog]
    if not machine.small_swap:
        options += ["--rate", str(_MIB_PER_S[hog])]
    report = "{run}/hog.lines"
    mib = machine.hog_mib(hog, utilisation)
    argv = (f"{{workloads}}/{program}", "--program", str(mib), *options)
    return BackgroundSpec(
        name="hog",
        command=Command(argv=(*argv, "--seed", "{seed}1", "--report", report), nice=10),
        units=UnitLines(path=report, name="MiB touched"),
        phases=(Phase(start_s=BURN_IN_S),),
    )


_NEEDS: Final = (
    Need(program="python:onnx", package="onnx"),
    Need(program="python:onnxruntime", package="onnxruntime"),
)
_WORKLOADS: Final = ("{python}", "-m")
_SOCKET: Final = "{run}/detector.sock"
_REQUESTS: Final = "{run}/requests.lines"
_DETECTOR: Final = ProtectedSpec(
    prepare=(
        (
            *_WORKLOADS,
            "stallward.env.workloads.detector_data",
            "{data}",
            "--images",
            str(_IMAGES),
            "--seed",
            "1",
        ),
        (
            *_WORKLOADS,
            "stallward.env.workloads.random_file",
            _HOG_FILE,
            "--mib",
            str(ZONE_MIB),
            "--seed",
            "2",
        ),
    ),
    server=Command(
        argv=(
            *_WORKLOADS,
            "stallward.env.workloads.detector_server",
            "--data",
            "{data}",
            "--socket",
            _SOCKET,
        )
    ),
    ready=_SOCKET,
    load=Command(
        argv=(
            "{workloads}/load",
            "--socket",
            _SOCKET,
            "--request",
            "%K\n",
            "--keys",
            str(_IMAGES),
            "--ok-prefix",
            "ok",
            "--rate",
            str(_IMAGES_PER_S),
            # One image at a time, as in the thesis: the next waits outside until it is done.
            "--connections",
            "1",
            "--seed",
            "{seed}",
            "--out",
            _REQUESTS,
        )
    ),
    latency=LatencyLines(path=_REQUESTS, start="0", sent="1", end="2", ok="3"),
    slo=Slo(latency_ms=SLO_MS),
)
