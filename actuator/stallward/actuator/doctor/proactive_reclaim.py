"""Finding out whether the kernel reclaims idle pages although there is no pressure.

DAMON does so where it is configured to: by the module ``damon_reclaim``
(Documentation/admin-guide/mm/damon/reclaim.rst) or by a scheme with the action ``pageout``
(Documentation/admin-guide/mm/damon/usage.rst). An application whose files are seldom read then
waits for the disk although memory is free, and none of our levers changes that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.paths import Paths

_ADMIN: Final = "kernel/mm/damon/admin/kdamonds"
_MODULE: Final = "module/damon_reclaim/parameters"


def idle_pages_taken_after_s(paths: Paths) -> float | None:
    """Return after how many seconds without use the kernel reclaims a page proactively.

    Returns:
        The least time of all schemes that run; ``None`` if none runs, or none can be read.
    """
    ages_s = [_module_age_s(paths.sys / _MODULE)]
    for daemon in sorted((paths.sys / _ADMIN).glob("[0-9]*")):
        if _read(daemon / "state") == "on":
            schemes = sorted(daemon.glob("contexts/*/schemes/[0-9]*"))
            ages_s += [_scheme_age_s(scheme) for scheme in schemes]
    return min((age_s for age_s in ages_s if age_s is not None), default=None)


def _module_age_s(folder: Path) -> float | None:
    if _read(folder / "enabled") != "Y":
        return None
    return 1e-6 * _number(folder / "min_age")


def _scheme_age_s(scheme: Path) -> float | None:
    if _read(scheme / "action") != "pageout":
        return None
    periods = _number(scheme / "access_pattern" / "age" / "min")
    attributes = scheme.parents[1] / "monitoring_attrs" / "intervals"
    return 1e-6 * periods * _number(attributes / "aggr_us")


def _number(path: Path) -> float:
    try:
        return float(_read(path))
    except ValueError:
        return 0.0


def _read(path: Path) -> str:
    try:
        return (read_text(path) or "").strip()
    except KernelFileError:
        return ""
