"""Options of commands whose work can be spread over a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final

import typer

_RAY: Final = "--ray"

Ray = Annotated[
    str | None,
    typer.Option(
        _RAY,
        metavar="[ADDRESS]",
        help="Run on Ray: HOST:PORT or auto; without an address RAY_ADDRESS, or a Ray of its own.",
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Also keep the files at this URL (s3://..., file://...), and resume from there.",
    ),
]


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """Give ``--ray`` an empty value where no address follows it.

    The library of the command line has no options whose value may be left out.

    Args:
        arguments: The arguments of the program.
    """
    given = []
    for argument, following in pairwise([*arguments, ""]):
        bare = argument == _RAY and (not following or following.startswith("-"))
        given.append(f"{_RAY}=" if bare else argument)
    return given
