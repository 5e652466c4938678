"""The overrides of torch's requirements in pyproject.toml still fit the locked torch."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
TOOLKIT = "cuda-toolkit"
UNUSED_EXTRAS = {"cusolver", "nvjitlink", "nvtx"}
"""Extras of cuda-toolkit that torch requires and that training on CPUs never loads."""

ON_LINUX = {"platform_system": "Linux", "sys_platform": "linux", "extra": ""}


def on_linux(requirements: Iterable[str]) -> dict[str, Requirement]:
    """Return the requirements of a package that hold on Linux without extras, by name."""
    parsed = (Requirement(text) for text in requirements)
    return {r.name: r for r in parsed if r.marker is None or r.marker.evaluate(ON_LINUX)}


def complaints(overrides: Iterable[str], torch: Iterable[str], others: Iterable[str]) -> list[str]:
    """Say what has to change in the overrides.

    Args:
        overrides: The overrides, as in pyproject.toml.
        torch: The requirements of torch.
        others: The requirements of the other installed packages.

    Returns:
        One sentence for each override that no longer fits.
    """
    required = on_linux(torch)
    anywhere = required.keys() | on_linux(others).keys()
    overridden = {r.name: r for r in map(Requirement, overrides)}
    dropped = [name for name, r in overridden.items() if r.marker is not None]
    sentences = [
        f'no package requires {name} any more: remove "{overridden[name]}"'
        for name in dropped
        if name not in anywhere
    ]
    ours, theirs = overridden.get(TOOLKIT), required.get(TOOLKIT)
    if theirs is None:
        if ours is not None:
            sentences.append(f'torch no longer requires {TOOLKIT}: remove "{ours}"')
        return sentences
    if gone := UNUSED_EXTRAS - theirs.extras:
        sentences.append(
            f"torch no longer requires {TOOLKIT}[{','.join(sorted(gone))}]: "
            f"remove it from UNUSED_EXTRAS in {Path(__file__).name}"
        )
    extras = ",".join(sorted(theirs.extras - UNUSED_EXTRAS))
    wanted = f"{TOOLKIT}[{extras}]{theirs.specifier}"
    if ours is None or str(ours) != wanted:
        sentences.append(f'torch requires {theirs}: replace "{ours}" by "{wanted}"')
    return sentences


def overrides() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed: list[str] = tomllib.load(file)["tool"]["uv"]["override-dependencies"]
    return listed


@pytest.mark.skipif(sys.platform != "linux", reason="torch requires CUDA on Linux only")
def test_the_overrides_fit_the_locked_torch() -> None:
    with (ROOT / "uv.lock").open("rb") as file:
        packages = tomllib.load(file)["package"]
    locked = {p["version"] for p in packages if p["name"] == "torch"}
    assert locked == {metadata.version("torch")}, "run scripts/setup.sh"
    others = [
        requirement
        for distribution in metadata.distributions()
        if distribution.name != "torch"
        for requirement in distribution.requires or []
    ]
    wrong = complaints(overrides(), metadata.requires("torch") or [], others)
    assert wrong == [], (
        "override-dependencies in pyproject.toml no longer fit torch "
        f"{metadata.version('torch')}. {'; '.join(wrong)}. Then run `uv lock`."
    )


LOCKED = [
    "filelock",
    'cuda-toolkit[cublas,cusolver,nvjitlink,nvtx]==13.2.2; platform_system == "Linux"',
    'triton~=3.9.0; platform_system == "Linux" and python_version < "3.16"',
]
OURS = ["triton ; python_version < '0'", "cuda-toolkit[cublas]==13.2.2"]


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        (LOCKED, []),
        (
            [LOCKED[1].replace("13.2.2", "14.0.0"), LOCKED[2]],
            ['replace "cuda-toolkit[cublas]==13.2.2" by "cuda-toolkit[cublas]==14.0.0"'],
        ),
        (
            [LOCKED[1].replace("cublas", "cublas,curand"), LOCKED[2]],
            ['by "cuda-toolkit[cublas,curand]==13.2.2"'],
        ),
        ([LOCKED[1].replace(",nvtx", ""), LOCKED[2]], ["remove it from UNUSED_EXTRAS"]),
        (LOCKED[:2], ["no package requires triton any more"]),
        ([LOCKED[2]], ["torch no longer requires cuda-toolkit"]),
    ],
    ids=["as locked", "new version", "new extra", "extra gone", "package gone", "toolkit gone"],
)
def test_a_change_of_torchs_requirements_is_reported_with_its_fix(
    torch: list[str], says: list[str]
) -> None:
    sentences = complaints(OURS, torch, [])
    assert len(sentences) == len(says)
    assert all(part in sentence for part, sentence in zip(says, sentences, strict=True))
