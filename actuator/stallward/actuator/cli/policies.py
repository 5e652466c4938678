"""``stallward ctl push``, ``load``, ``mode`` and the like: a node's policies."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.cli.options import Json
from stallward.actuator.policies.named_controller import specification_of
from stallward.actuator.record.tick_record import Mode
from stallward.agent.controllers.policy_file import check_policy
from stallward.agent.errors import PolicyError, UsageError

if TYPE_CHECKING:
    from stallward.actuator.client import StoredPolicyInfo


def push(
    policy: Annotated[Path, typer.Argument(help="An ONNX policy file on this machine.")],
    name: Annotated[str, typer.Option(help="Its name on the node [that of the file].")] = "",
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Send a policy to the node's store; it is not loaded.

    A file that is no ONNX model is refused, and by the node what does not run there. An upload
    that broke off goes on. The daemon needs a folder for it: store under [policy].
    """
    try:
        content = policy.read_bytes()
    except OSError as error:
        raise PolicyError(f"{policy} cannot be read ({error.strerror}).") from error
    check_policy(content, policy)
    with connect(socket) as client:
        stored = client.push(content, name=name or policy.stem)
    output.line(f"stored {stored.name} (sha256 {stored.sha256[:12]})")


def policies(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """List the policies in the node's store, oldest first."""
    with connect(socket) as client:
        stored = client.policies()
    if as_json:
        output.print_json([asdict(one) for one in stored])
        return
    rows = [
        (
            one.name,
            one.sha256[:12],
            f"{one.size_bytes / 1e6:.2f}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one.stored_s)),
            _use(one, stored),
        )
        for one in stored
    ]
    output.table(("name", "sha256", "MB", "stored", ""), rows)


def _use(policy: StoredPolicyInfo, stored: Sequence[StoredPolicyInfo]) -> str:
    """What a policy does, or that its name means another one."""
    if policy.loaded:
        return "active" if policy.active else "loaded"
    newest = [one for one in stored if one.name == policy.name][-1]
    return "" if policy is newest else f"older of the name {policy.name}"


def remove(
    policy: Annotated[
        str, typer.Argument(help="Its name, which means the newest of that name, or its digest.")
    ],
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Remove a policy from the node's store.

    One that runs is refused: turn it off first.
    """
    with connect(socket) as client:
        removed = client.remove(policy)
    output.line(f"removed {removed.name} (sha256 {removed.sha256[:12]})")


def roll_back(socket: Socket = DEFAULT_SOCKET) -> None:
    """Activate the policy that was active before this one.

    If there was none, the policy is turned off, and the default controller decides.
    """
    with connect(socket) as client:
        policy = client.roll_back()
    if policy is None:
        output.line("off: the default controller decides")
    else:
        output.line(f"active: {policy.name} (sha256 {policy.sha256[:12]})")


def load(
    policy: Annotated[
        str,
        typer.Argument(
            help="A policy file, the name or digest of one there, or controller:NAME[:key=value]."
        ),
    ],
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Load a policy into the daemon; it starts off."""
    with connect(socket) as client:
        loaded = client.load(on_node(policy))
    output.line(f"loaded {loaded.name} (sha256 {loaded.sha256[:12]}); it is off")


def on_node(policy: str) -> str:
    """A policy as the daemon takes it: a file here by its whole path."""
    # Path.is_file raises where a name is too long for a file, as that of a controller may be.
    is_file = specification_of(policy) is None and os.path.isfile(policy)  # noqa: PTH113
    return str(Path(policy).resolve()) if is_file else policy


def mode(
    wanted: Annotated[str, typer.Argument(metavar="MODE", help="active, shadow, advice or off.")],
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Turn the loaded policy active, shadow, advice or off.

    In shadow it decides and is recorded, and the daemon's own controller is applied. Advice is the
    same, and ctl advice says what the policy would do.
    """
    names = {one.name.lower(): one for one in (Mode.ACTIVE, Mode.SHADOW, Mode.ADVICE, Mode.OFF)}
    if wanted not in names:
        raise UsageError(
            f"{wanted!r} is not a mode.", next_step=f"Choose one of: {', '.join(names)}."
        )
    with connect(socket) as client:
        client.set_mode(names[wanted])
    output.line(f"mode {wanted}")
