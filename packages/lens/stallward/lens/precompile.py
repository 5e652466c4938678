"""Compile the twin and the lens now, so that later starts only read what was compiled.

``python -m stallward.lens.precompile`` does what ``stallward.env.precompile`` does, and the same
for the lens.
"""

from __future__ import annotations

import io

from stallward.env import precompile as environments
from stallward.lens.workingset.analysis import AnalysisSettings, analyse


def precompile() -> None:
    """Call every kernel of the lens once."""
    lines = "".join(f"I  {page << 12:x},8\n" for page in range(5000))
    analyse(io.BytesIO(lines.encode()).readinto, AnalysisSettings(lru_pages=256))


if __name__ == "__main__":
    environments.precompile()
    precompile()
