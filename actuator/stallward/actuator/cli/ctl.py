"""``stallward ctl``: talk to a running daemon over gRPC."""

from __future__ import annotations

import typer

from stallward.actuator.cli.connect import DEFAULT_SOCKET
from stallward.actuator.cli.lazy import add_command

ctl = typer.Typer(
    help="Ask a running daemon what it does, or tell it what to do.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=f"Example: stallward ctl watch --socket {DEFAULT_SOCKET}",
)
add_command(
    ctl,
    "stallward.actuator.cli.status:status",
    "Print what the daemon is doing now.",
    "stallward ctl status --json",
)
add_command(
    ctl,
    "stallward.actuator.cli.status:watch",
    "Print one line a tick.",
    "stallward ctl watch --every 10",
)
add_command(
    ctl,
    "stallward.actuator.cli.apply:apply",
    "Hold a desired state on the node for the time of a lease.",
    "stallward ctl apply --pause 0,1 --limit 2=200 --cpu-weight 2=20 --lease 10",
)
add_command(
    ctl, "stallward.actuator.cli.apply:release", "Give a lease back.", "stallward ctl release"
)
add_command(
    ctl,
    "stallward.actuator.cli.policies:push",
    "Send a policy to the node's store; it is not loaded.",
    "stallward ctl push build/policy.onnx --name november",
)
add_command(
    ctl,
    "stallward.actuator.cli.policies:policies",
    "List the policies in the node's store, oldest first.",
    "stallward ctl policies",
)
add_command(
    ctl,
    "stallward.actuator.cli.policies:remove",
    "Remove a policy from the node's store.",
    "stallward ctl remove november",
)
add_command(
    ctl,
    "stallward.actuator.cli.policies:roll_back",
    "Activate the policy that was active before this one.",
    "stallward ctl roll-back",
)
add_command(
    ctl,
    "stallward.actuator.cli.policies:load",
    "Load a policy into the daemon; it starts off.",
    "stallward ctl load default",
)
add_command(
    ctl,
    "stallward.actuator.cli.policies:mode",
    "Turn the loaded policy active, shadow, advice or off.",
    "stallward ctl mode active",
)
add_command(
    ctl,
    "stallward.actuator.cli.advice:advice",
    "Say what a policy in advice mode would do, and why.",
    "stallward ctl advice --last 20",
)
add_command(
    ctl,
    "stallward.actuator.cli.shadow:shadow",
    "Say how often a policy in shadow mode wanted something else.",
    "stallward ctl shadow --recording /var/lib/stallward/recording",
)
add_command(
    ctl,
    "stallward.actuator.cli.report:report",
    "Report the application's latencies from standard input.",
    "tail -Fn0 access.log | stallward ctl report --latency 3 --unit s",
)
