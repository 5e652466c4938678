"""Keeping a process prompt under memory pressure. Each step is best effort."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from typing import Final

_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
_MCL_ONFAULT: Final = 4
_NICE: Final = -15


def single_threaded_maths() -> None:
    """One thread for BLAS and ONNX Runtime; call it before numpy is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def stay_in_memory() -> bool:
    """Lock what is mapped and will be, as it is touched; returns whether it was allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    # ONFAULT: without it every page of every library is read in and kept.
    return bool(libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0)


def run_first() -> None:
    """Ask the scheduler to wake this process before ordinary ones."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def quiet_collector() -> None:
    """Collect garbage now and only when asked to; what is alive now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()
