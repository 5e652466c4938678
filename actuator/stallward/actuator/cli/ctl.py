"""``stallward ctl``: talk to a running daemon over gRPC."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.advice import advice
from stallward.actuator.cli.apply import apply, release
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Nodes, Socket, connect, on_many_nodes
from stallward.actuator.cli.options import LONGEST_S, Json
from stallward.agent.errors import PolicyError, UsageError

if TYPE_CHECKING:
    from stallward.actuator.client import StoredPolicyInfo

ctl = typer.Typer(
    help="Ask a running daemon what it does, or tell it what to do.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=f"Example: stallward ctl watch --socket {DEFAULT_SOCKET}",
)


@ctl.command(epilog="Example: stallward ctl status --json")
def status(
    socket: Socket = DEFAULT_SOCKET,
    everything: Annotated[
        bool, typer.Option("--all", help="List all signals and levers that the node lacks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what the daemon is doing now."""
    from stallward.actuator.cli.status_text import (  # noqa: PLC0415
        folded,
        status_rows,
        status_values,
    )

    with connect(socket) as client:
        answer = client.status()
    if as_json:
        output.print_json(status_values(answer))
        return
    output.table(("what", "value"), folded(status_rows(answer, everything=everything)))


@ctl.command(epilog="Example: stallward ctl watch --every 10")
def watch(
    socket: Socket = DEFAULT_SOCKET,
    every: Annotated[int, typer.Option(min=1, help="Show every n-th tick.")] = 1,
    count: Annotated[int, typer.Option(min=0, help="Stop after so many; 0 never.")] = 0,
    nodes: Nodes = None,
    as_json: Json = False,
) -> None:
    """Print one line a tick.

    It has the inputs of the decision, the decision and what the guard said. Of many nodes it also
    says at the end which ticks were lost.
    """
    if nodes is not None:
        on_many_nodes("ctl.watch")(nodes, every=every, count=count, as_json=as_json)
        return
    from stallward.actuator.cli.tick_text import TickPrinter  # noqa: PLC0415

    with connect(socket) as client:
        printer = TickPrinter(as_json=as_json, names=client.status().slots)
        for number, watched in enumerate(client.watch(every=every), start=1):
            text = printer.line(watched.record)
            if text:
                output.line(text)
            if count and number >= count:
                return


ctl.command(
    epilog="Example: stallward ctl apply --pause 0,1 --limit 2=200 --cpu-weight 2=20 --lease 10"
)(apply)
ctl.command(epilog="Example: stallward ctl release")(release)


@ctl.command(epilog="Example: stallward ctl push build/policy.onnx --name november")
def push(
    policy: Annotated[Path, typer.Argument(help="An ONNX policy file on this machine.")],
    name: Annotated[str, typer.Option(help="Its name on the node [that of the file].")] = "",
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Send a policy to the node's store; it is not loaded.

    A file that is no ONNX model is refused. An upload that broke off goes on. The daemon needs a
    folder for it: store under [policy].
    """
    from stallward.agent.controllers.policy_file import check_policy  # noqa: PLC0415

    try:
        content = policy.read_bytes()
    except OSError as error:
        raise PolicyError(f"{policy} cannot be read ({error.strerror}).") from error
    check_policy(content, policy)
    with connect(socket) as client:
        stored = client.push(content, name=name or policy.stem)
    output.line(f"stored {stored.name} (sha256 {stored.sha256[:12]})")


@ctl.command(epilog="Example: stallward ctl policies")
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


@ctl.command(epilog="Example: stallward ctl remove november")
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


@ctl.command("roll-back", epilog="Example: stallward ctl roll-back")
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


@ctl.command(epilog="Example: stallward ctl load default")
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
        loaded = client.load(str(Path(policy).resolve()) if Path(policy).exists() else policy)
    output.line(f"loaded {loaded.name} (sha256 {loaded.sha256[:12]}); it is off")


@ctl.command(epilog="Example: stallward ctl mode active")
def mode(
    wanted: Annotated[str, typer.Argument(metavar="MODE", help="active, shadow, advice or off.")],
    socket: Socket = DEFAULT_SOCKET,
) -> None:
    """Turn the loaded policy active, shadow, advice or off.

    In shadow it decides and is recorded, and the daemon's own controller is applied. Advice is the
    same, and ctl advice says what the policy would do.
    """
    from stallward.actuator.record.tick_record import Mode  # noqa: PLC0415

    names = {one.name.lower(): one for one in (Mode.ACTIVE, Mode.SHADOW, Mode.ADVICE, Mode.OFF)}
    if wanted not in names:
        raise UsageError(
            f"{wanted!r} is not a mode.", next_step=f"Choose one of: {', '.join(names)}."
        )
    with connect(socket) as client:
        client.set_mode(names[wanted])
    output.line(f"mode {wanted}")


ctl.command(epilog="Example: stallward ctl advice --last 20")(advice)


@ctl.command(epilog="Example: stallward ctl shadow --recording /var/lib/stallward/recording")
def shadow(
    socket: Socket = DEFAULT_SOCKET,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="How long to watch.")
    ] = 60,
    recording: Annotated[
        Path | None, typer.Option(help="Instead, the daemon's record: [record] dir.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how often a policy in shadow mode wanted something else.

    Also what it wanted of each slot, and when they differed longest.
    """
    from stallward.actuator.cli.shadow_text import shadow_lines, shadow_rows  # noqa: PLC0415
    from stallward.actuator.record.shadow_summary import ShadowTally  # noqa: PLC0415

    tally = ShadowTally()
    names: tuple[str, ...] = ()
    if recording is None:
        with connect(socket) as client:
            names = client.status().slots
            deadline_s = time.monotonic() + seconds
            for watched in client.watch():
                tally.take(watched.record)
                if time.monotonic() >= deadline_s:
                    break
    else:
        from stallward.actuator.record.reading import read_records  # noqa: PLC0415

        for record in read_records(recording):
            tally.take(record)
    summary = tally.summary()
    if summary is None:
        raise UsageError(
            "No policy ran in shadow mode.",
            next_step="Load one, and turn it on: stallward ctl mode shadow.",
        )
    if as_json:
        output.print_json(asdict(summary))
        return
    output.table(("", "decides", "shadow"), shadow_rows(summary, names))
    output.line()
    for text in shadow_lines(summary):
        output.line(text)


@ctl.command(epilog="Example: tail -Fn0 access.log | stallward ctl report --latency 3 --unit s")
def report(
    socket: Socket = DEFAULT_SOCKET,
    latency: Annotated[str, typer.Option(help="Column from 0, or a group of --pattern.")] = "0",
    ok: Annotated[str | None, typer.Option(help="Field that says if it was answered.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Regular expression of a line.")] = None,
    separator: Annotated[str | None, typer.Option(help="Between columns; white space.")] = None,
    unit: Annotated[str, typer.Option(help="s, ms or us.")] = "ms",
    application: Annotated[str, typer.Option(help="Its name, where several are protected.")] = "",
) -> None:
    """Report the application's latencies from standard input.

    Each line is a request that ended. The daemon must be configured with source = "grpc" under
    [latency].
    """
    from stallward.actuator.client.latency_reports import LineBatches  # noqa: PLC0415
    from stallward.actuator.latency.config import UNIT_MS  # noqa: PLC0415
    from stallward.actuator.latency.lines.line_format import LineFormat  # noqa: PLC0415

    if unit not in UNIT_MS:
        raise UsageError(
            f"{unit!r} is not a unit.", next_step=f"Choose one of: {', '.join(UNIT_MS)}."
        )
    line_format = LineFormat(
        latency=latency,
        ok=ok,
        pattern=pattern,
        separator=separator,
        latency_unit_s=UNIT_MS[unit] / 1e3,
    )
    batches = LineBatches(sys.stdin.fileno(), line_format)
    with connect(socket) as client:
        summary = client.report(batches, application)
    output.line(
        f"{summary.accepted} reported, {summary.failed} failed, {summary.late} too late, "
        f"{summary.malformed + batches.tally.malformed} not understood"
    )
    if batches.tally.first_malformed:
        output.line(f"the first that was not understood: {batches.tally.first_malformed}")
