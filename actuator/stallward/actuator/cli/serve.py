"""``stallward serve`` and ``restore``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG, ConfigFile, check_config
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.config.tables import ProtectedConfig, SlotConfig
from stallward.actuator.guardian.restore_command import RestoreOptions, main
from stallward.actuator.guardian.restorer import RestorerOptions
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.kernel.paths import SOCKET
from stallward.actuator.latency.config import describe as describe_latency
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.targets.sources import follower_of_pods
from stallward.actuator.work.config import CpuWork
from stallward.actuator.work.config import describe as describe_work


def start_lines(config: DaemonConfig, path: Path, version: str) -> Iterator[str]:
    """Make the lines that are printed before the daemon starts.

    Args:
        config: Its configuration.
        path: The file that it was read from.
        version: The version of the daemon.
    """
    control = config.control
    yield f"version {version} starts with {path}"
    slots = ", ".join(f"{slot.name} ({_target(slot)})" for slot in config.background)
    protected = " and ".join(
        f"{_target(one)} (p95 within {slo_ms:g} ms)"
        for one, slo_ms in zip(config.applications, config.targets_ms, strict=True)
    )
    yield f"it protects {protected} from {slots or 'nothing'}"
    effect = ""
    if control.dry_run:
        effect = ", and nothing is changed (dry_run)"
    elif control.controller == "none":
        effect = ", which changes nothing"
    yield f"{control.controller} decides{effect}"
    several = len(config.applications) > 1
    for one, latency in zip(config.applications, config.latencies, strict=True):
        source = (
            describe_latency(latency) if latency else "no latencies: stalls alone show pressure"
        )
        yield f"{one.name}: {source}" if several else source
    for slot in config.background:
        if not isinstance(slot.work, CpuWork):
            yield f"work of {slot.name}: {slot.work.unit} from {describe_work(slot.work)}"
    places = {
        "records in": config.record and config.record.dir,
        "pushed policies in": config.policy.store,
        "metrics at": config.service.metrics,
        "other machines at": config.remote and config.remote.address,
        "journal of changes in": config.journal.path,
    }
    yield ", ".join(f"{what} {where}" for what, where in places.items() if where)
    socket = config.service.socket
    option = "" if socket == SOCKET else f" --socket {socket}"
    yield f"ask it with `stallward ctl status{option}`; Ctrl-C or SIGTERM ends it"


def _target(target: ProtectedConfig | SlotConfig) -> str:
    """The group, the processes or the pods that are meant."""
    if target.group is not None:
        return target.group
    if target.processes is not None:
        tree = target.processes
        if tree.command is not None:
            return f"processes that match {tree.command!r}"
        return f"processes of {tree.pidfile or ', '.join(map(str, tree.pids))}"
    pod = target.pod
    if pod is None:
        return "nothing"
    qos = (one.value for one in pod.qos)
    named = (pod.namespace, pod.selector, pod.role and f"role {pod.role}", *qos)
    return f"pods {' '.join(filter(None, named))}"


def serve(
    config: ConfigFile = DEFAULT_CONFIG,
) -> None:
    """Run the actuator daemon in the foreground (needs root).

    It runs until SIGTERM or Ctrl-C. Everything it changed is put back when it stops, however
    it stops.
    """
    check_config(config)
    settings = load_config(config)
    options = GuardianOptions(
        config=config, pods_module=follower_of_pods() if settings.follows_pods else ""
    )
    for text in start_lines(with_profiles(settings), config, version("stallward")):
        output.note(f"stallward: {text}")
    # A fresh process: the guardian must not carry the command line's imports.
    command = command_line(Modules().guardian, options)
    os.execv(command[0], command)  # noqa: S606


def restore(
    config: ConfigFile = DEFAULT_CONFIG,
    journal: Annotated[
        Path | None, typer.Option(help="Its journal, where there is no such file any more.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and do it whenever a daemon has died.")
    ] = False,
) -> None:
    """Put back what a dead daemon left changed.

    It starts no daemon, and prints what it undid. It may be run at any time and again. Exit code 0:
    everything is as it was; 1: something could not be undone, and stays in the journal; 2: it
    could not be tried, e.g. because a daemon runs.

    With --watch, SIGTERM or Ctrl-C ends it as soon as no daemon runs any more; a second one, at
    once.
    """
    if journal is None:
        check_config(config)
    if watch:
        # A fresh process, as for `serve`: it stays, so each of its megabytes does.
        options = RestorerOptions(config=config, journal=journal and journal.absolute())
        command = command_line(Modules().restorer, options)
        os.execv(command[0], command)  # noqa: S606
    raise typer.Exit(main(RestoreOptions(config=config, journal=journal)))
