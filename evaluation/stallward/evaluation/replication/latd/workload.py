"""What the experiments of the latd thesis run: a detector, and hogs of memory beside it.

The thesis has a machine of 16 GB with YOLOv3, which reads its weights and images of 100 to 200 KB
through the page cache. Here the zone has 640 MiB, a 26th of that, and the detector of the shipped
scenarios reads images of 147 KiB and maps 156 MiB of weights. One image is worked on at a time.
"""

from __future__ import annotations

from typing import Final, Literal

from stallward.env.scenario.scenario import (
    BackgroundSpec,
    Command,
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
_HOG_FILE: Final = "{data}/hog.bin"
_COMMANDS: Final[dict[Hog, tuple[str, ...]]] = {
    "anon-once": ("anon_once", "--block", str(_BLOCK_MIB), "--rate", str(_FILL_MIB_PER_S)),
    "anon-again": ("anon", "--order", "scan", "--rate", str(_AGAIN_MIB_PER_S)),
    "file-once": ("file_once", "--file", _HOG_FILE, "--rate", str(_FILL_MIB_PER_S)),
    "file-again": (
        "file_loop",
        "--file",
        _HOG_FILE,
        "--order",
        "scan",
        "--rate",
        str(_AGAIN_MIB_PER_S),
    ),
}


def hog_mib(utilisation: float) -> int:
    """The size of the hog with which both programs want a share of the zone's memory."""
    return round(utilisation * ZONE_MIB) - DETECTOR_MIB


def hog_scenario(hog: Hog, utilisation: float) -> Scenario:
    """The detector beside one hog, which starts when the burn-in ends.

    Args:
        hog: The kind of hog.
        utilisation: How much both want together, as a share of the zone's memory.
    """
    return Scenario(
        name=f"latd-{hog}-{100 * utilisation:.0f}",
        summary=f"detector beside the hog {hog}, {100 * utilisation:.0f} % of the memory wanted",
        sandbox=SandboxSpec(
            limit_bytes=ZONE_MIB * MIB,
            ample_bytes=4 * ZONE_MIB * MIB,
            swap_bytes=_SWAP_MIB * MIB,
        ),
        protected=_DETECTOR,
        background=(_background(hog, hog_mib(utilisation)),),
        needs=_NEEDS,
        application="detector",
    )


def _background(hog: Hog, mib: int) -> BackgroundSpec:
    program, *options = _COMMANDS[hog]
    report = "{run}/hog.lines"
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
