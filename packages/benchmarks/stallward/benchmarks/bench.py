"""``stallward bench``: the cost of the daemon and the speed of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json, Seed
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.agent.desired import MIB
from stallward.agent.errors import UsageError
from stallward.benchmarks.calls import MEANINGS as CALL_MEANINGS
from stallward.benchmarks.calls import Clients, bench_calls
from stallward.benchmarks.decisions import bench_decisions, timed_arms
from stallward.benchmarks.env_steps import bench_environment, environment_rows
from stallward.benchmarks.experiments import MEANINGS as EXPERIMENT_MEANINGS
from stallward.benchmarks.experiments import ExperimentSettings, bench_experiments
from stallward.benchmarks.fleet.bench import MEANINGS as FLEET_MEANINGS
from stallward.benchmarks.fleet.bench import FleetSettings, bench_fleet
from stallward.benchmarks.fleet.rollouts import MEANINGS as ROLLOUT_MEANINGS
from stallward.benchmarks.fleet.rollouts import RolloutSettings, bench_rollout
from stallward.benchmarks.fleet.scraping import MEANINGS as SCRAPING_MEANINGS
from stallward.benchmarks.fleet.scraping import ScrapeSettings, bench_scrape
from stallward.benchmarks.garbage import MEANINGS as GARBAGE_MEANINGS
from stallward.benchmarks.garbage import bench_garbage
from stallward.benchmarks.harm import HarmRequest, HarmTally, bench_harm
from stallward.benchmarks.kills.arms import (
    ENDING_STORM,
    STORM,
    KilledArm,
    choose_arms,
    one_controller,
)
from stallward.benchmarks.kills.bench import bench_kills, campaign_node
from stallward.benchmarks.kills.campaign import IN_TURN, Instants
from stallward.benchmarks.kills.tally import MEANINGS as KILL_MEANINGS
from stallward.benchmarks.kills.tally import ArmKills, Tally
from stallward.benchmarks.limit_kills import MEANINGS as LIMIT_MEANINGS
from stallward.benchmarks.limit_kills import LimitTally, bench_limits
from stallward.benchmarks.memory import bench_memory
from stallward.benchmarks.node_experiment import MEANINGS as NODE_EXPERIMENT_MEANINGS
from stallward.benchmarks.node_experiment import NodeExperiment, bench_experiment
from stallward.benchmarks.overhead import MEANINGS as DAEMON_MEANINGS
from stallward.benchmarks.overhead import bench_node
from stallward.benchmarks.pods import MEANINGS as POD_MEANINGS
from stallward.benchmarks.pods import bench_pods
from stallward.benchmarks.trace_cost import MEANINGS as TRACE_MEANINGS
from stallward.benchmarks.trace_cost import bench_traces
from stallward.env.scenario.scenario import DiskLimit
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.arms import find_policy_of, parse_arms
from stallward.evaluation.cli.plugins import PluggedGroup
from stallward.models.registry import find_twin

app = typer.Typer(
    name="bench",
    cls=PluggedGroup,
    add_completion=False,
    help="Measure the daemon's own cost, or the environment's speed.",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Examples: stallward bench --json; stallward bench calls; stallward bench env",
)


def figure_rows(
    figures: Mapping[str, float | None], meanings: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Rows of a table: measure, value, meaning."""
    return [(key, _format(key, value), meanings[key]) for key, value in figures.items()]


def _format(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key in {"onsets", "ticks", "earlyoom_actions"}:
        return f"{value:.0f}"
    return f"{100 * value:.2f} %" if "share" in key else f"{value:.2f}"


def _print(
    figures: dict[str, float | None], rows: list[tuple[str, str, str]], *, as_json: bool
) -> None:
    """Print the figures of a benchmark as JSON, or as a table their rows."""
    if as_json:
        output.print_json(figures)
    else:
        output.table(("measure", "value", "what it is"), rows)


@app.callback()
def daemon(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(min=10.0, max=LONGEST_S, help="Length of each phase.")
    ] = 40.0,
    scenario: Annotated[str, typer.Option(help="Scenario [the worst shipped one].")] = "",
    as_json: Json = False,
) -> None:
    """Measure the daemon in a sandbox, calm and under memory pressure (needs root).

    It prints decision time, jitter, CPU, memory, and the time from the first stall of the
    protected application to the pause. If earlyoom is installed, it also prints the cost of
    earlyoom on the same pressure.
    """
    if context.invoked_subcommand is not None:
        return
    with output.progress("bench") as report:
        figures = bench_node(scenario=scenario, seconds=seconds, report=report)
    _print(figures, figure_rows(figures, DAEMON_MEANINGS), as_json=as_json)


@app.command("calls", epilog="Example: stallward bench calls --rate 100 --watchers 100")
def calls(
    seconds: Annotated[
        float, typer.Option(min=10.0, max=LONGEST_S, help="Length of the measurement.")
    ] = 60.0,
    rate: Annotated[float, typer.Option(min=0.0, max=100_000.0, help="Calls a second.")] = 1000.0,
    watchers: Annotated[int, typer.Option(min=0, max=256, help="Clients that watch.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure whether the loop keeps its period under many calls and watchers.

    The service answers 1,000 calls a second under real pressure; needs root.
    """
    clients = Clients(calls_per_s=rate, watchers=watchers, seconds=seconds)
    with output.progress("bench calls") as report:
        figures = bench_calls(clients, report=report)
    _print(figures, figure_rows(figures, CALL_MEANINGS), as_json=as_json)


@app.command("trace", epilog="Example: stallward bench trace --json")
def trace(
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Length of each trace.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Measure the processor time of tracing a process of 100 MB, and of 2 GB.

    Their memory is in pages of 4 KiB, which is the most expensive case.
    """
    with output.progress("bench trace") as report:
        figures = bench_traces(seconds=seconds, paths=DEFAULT_PATHS, report=report)
    _print(figures, figure_rows(figures, TRACE_MEANINGS), as_json=as_json)


@app.command("pods", epilog="Example: stallward bench pods --json")
def pods(as_json: Json = False) -> None:
    """Measure a tick's processor time with 1, 10, 50 and 100 pods in one slot (needs root).

    The groups are real and its own, with one sleeping process each; it takes about a minute.
    """
    with output.progress("bench pods") as report:
        figures = bench_pods(report)
    _print(figures, figure_rows(figures, POD_MEANINGS), as_json=as_json)


@app.command("harm", epilog="Example: stallward bench harm --arms none,partition --rounds 5")
def harm(
    arms: Annotated[
        str, typer.Option(help="The arms, as for `compare`; `none` is what they are held against.")
    ] = "none,partition,rule,ppo",
    rounds: Annotated[int, typer.Option(min=1, help="Blocks of each arm.")] = 3,
    block_seconds: Annotated[float, typer.Option(min=5.0, help="The length of a block.")] = 60.0,
    swap_mib: Annotated[int, typer.Option(min=0, help="The swap of the sandbox.")] = 0,
    disk_mib_per_s: Annotated[
        int, typer.Option(min=0, help="How slow the disk is; 0 leaves it as it is.")
    ] = 0,
    jobs: Annotated[str, typer.Option(help="Names of jobs; all by default.")] = "",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Run ordinary programs with known results in the background, under each arm.

    It counts those that fail or have a wrong result, and says how much longer they take than under
    `none`. The exit code is 1 if an arm has more failures than `none`, peers aside; needs root.
    """
    chosen = parse_arms(arms)
    request = HarmRequest(
        arms=chosen,
        policies={arm.label: find_policy_of(arm, "default", "harm") for arm in chosen},
        rounds=rounds,
        block_s=block_seconds,
        swap_bytes=swap_mib * MIB,
        disk=DiskLimit(bytes_per_s=disk_mib_per_s * MIB) if disk_mib_per_s else None,
        only=tuple(filter(None, jobs.split(","))),
        seed=seed,
    )
    tally = HarmTally()
    try:
        with output.progress("bench harm") as report:
            bench_harm(tally, request, report=report)
    finally:  # the jobs of an hour must not be lost
        if tally.runs:
            _print_harm(tally, as_json=as_json)
    if tally.harms([arm.label for arm in chosen if arm.peer is None]):
        raise typer.Exit(1)


def _print_harm(tally: HarmTally, *, as_json: bool) -> None:
    rows = tally.by_arm()
    if as_json:
        output.print_json(
            {
                "arms": [asdict(row) for row in rows],
                "failures": [asdict(run) for run in tally.failures()],
                "left_out": tally.left_out,
            }
        )
        return
    output.table(
        ("arm", "jobs", "failed", "killed", "wrong result", "times as long", "p95 ms"),
        [
            (
                row.arm,
                str(row.jobs),
                str(row.failed),
                str(row.killed),
                str(row.wrong),
                "-" if row.slower is None else f"{row.slower:.2f}",
                "-" if row.p95_ms is None else f"{row.p95_ms:.1f}",
            )
            for row in rows
        ],
    )
    for run in tally.failures():
        output.note(f"{run.arm}: {run.job}: status {run.status}. {run.said}")
    for name, why in tally.left_out.items():
        output.note(f"Left out: {name}: {why}")


@app.command("kills", epilog="Example: stallward bench kills --kills 1000")
def kills(
    count: Annotated[int, typer.Option("--kills", min=1, help="Number of kills.")] = 1000,
    arms: Annotated[
        str, typer.Option(help="Arms that take turns, as for `compare`; `all` for every one.")
    ] = "",
    controller: Annotated[
        str, typer.Option(help="The daemon's controller [one that moves every lever].")
    ] = "",
    ends: Annotated[
        bool, typer.Option("--ends", help="The controller may end programs of the background.")
    ] = False,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="Let the daemon's system calls fail around each kill."),
    ] = False,
    several: Annotated[
        bool, typer.Option("--several", help="Protect two applications, not one.")
    ] = False,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Kill the daemon's processes at random, and check what they leave.

    It kills at random instants under pressure; a kill takes about 3.5 s, and twice as long where
    arms take turns; needs root. Settings that are not restored are printed on standard error for
    each kill; the exit code is 1 if there are any. If it is interrupted, it prints the figures of
    the finished kills and says so.
    """
    chosen, left_out = _killed_arms(arms, controller, ends=ends)
    tally = Tally(left_out=dict(left_out))
    try:
        with output.progress("bench kills") as report:
            bench_kills(
                tally,
                kills=count,
                arms=chosen,
                instants=IN_TURN if arms else Instants(),
                all_groups=bool(arms),
                faults=faults,
                several=several,
                seed=seed,
                report=report,
            )
    except BaseException:  # the kills of an hour must not be lost
        if tally.kills:
            _print_kills(tally, as_json=as_json, interrupted=True)
        raise
    _print_kills(tally, as_json=as_json, interrupted=False)
    if any(kill.problems for kill in tally.kills):
        raise typer.Exit(1)


def _killed_arms(
    arms: str, controller: str, *, ends: bool
) -> tuple[tuple[KilledArm, ...], Mapping[str, str]]:
    """The arms that the options mean, and why others are left out."""
    if not arms:
        return (one_controller(controller or (ENDING_STORM if ends else STORM), ends=ends),), {}
    if controller or ends:
        raise UsageError(
            "--arms names the controllers, and each may do what it is for.",
            next_step="Leave out --controller and --ends.",
        )
    return choose_arms(arms, campaign_node())


def _print_kills(tally: Tally, *, as_json: bool, interrupted: bool) -> None:
    for number, kill in enumerate(tally.kills):
        for line in kill.problems:
            output.note(f"kill {number} ({kill.arm}, {kill.target}): {line}")
    figures, rows = tally.figures(), tally.by_arm()
    if as_json:
        output.print_json(
            {
                "interrupted": interrupted,
                **figures,
                "arms": [asdict(row) for row in rows],
                "left_out": dict(tally.left_out),
            }
        )
        return
    if interrupted:
        output.line(f"Interrupted after {len(tally.kills)} kills.")
    _print(figures, figure_rows(figures, KILL_MEANINGS), as_json=False)
    if len(rows) > 1:
        output.line()
        headers = (
            "arm", "kills", "held", "left", "loop lost", "longest ms", "restart ms", "ended",
        )  # fmt: skip
        output.table(headers, [_cells(row) for row in rows])
        idle = [row.arm for row in rows if not row.found_held]
        if idle:
            output.line(f"Held nothing when they were killed: {', '.join(idle)}.")
    for label, reason in tally.left_out.items():
        output.note(f"Left out: {label}: {reason}")


def _cells(row: ArmKills) -> tuple[str, ...]:
    times_ms = (row.restore_max_ms, row.restart_max_ms)
    return (
        row.arm,
        str(row.kills),
        str(row.found_held),
        str(row.left_after_1_s),
        str(row.loop_lost),
        *("-" if time_ms is None else f"{time_ms:.0f}" for time_ms in times_ms),
        str(row.programs_ended),
    )


@app.command("limits", epilog="Example: stallward bench limits --blocks 200")
def limits(
    count: Annotated[int, typer.Option("--blocks", min=1, help="Number of blocks.")] = 200,
    seconds: Annotated[
        float, typer.Option(min=5.0, max=LONGEST_S, help="Length of each block.")
    ] = 8.0,
    as_json: Json = False,
) -> None:
    """Limit programs that dirty memory fast, and count what the kernel kills.

    The daemon limits each program, which wants 400 MiB, to 16 MiB; needs root and takes about 11 s
    a block. The exit code is 1 if a limit killed, or if anything was left. If it is interrupted,
    it prints the figures of the finished blocks.
    """
    tally = LimitTally()
    try:
        with output.progress("bench limits") as report:
            bench_limits(tally, blocks=count, seconds=seconds, report=report)
    finally:
        if tally.blocks:
            for number, block in enumerate(tally.blocks):
                for line in block.left:
                    output.note(f"block {number} ({block.program}): {line}")
            figures = tally.figures()
            _print(figures, figure_rows(figures, LIMIT_MEANINGS), as_json=as_json)
    if any(block.limit_kills or block.left for block in tally.blocks):
        raise typer.Exit(1)


@app.command("experiments", epilog="Example: stallward bench experiments --experiments 200")
def experiments(
    count: Annotated[
        int, typer.Option("--experiments", min=2, max=4096, help="Number of experiments.")
    ] = 200,
    pairs: Annotated[int, typer.Option(min=12, max=200, help="Pairs of blocks in each.")] = 24,
    twin: Annotated[str, typer.Option(help="Fitted twin, file or name.")] = "detector-anon",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Compare a controller with itself on twin nodes, and count the false alarms.

    It also says how small an effect the experiments see, beside what `ab plan` says.
    """
    settings = ExperimentSettings(experiments=count, pairs=pairs, seed=seed)
    with output.progress("bench experiments") as report:
        figures = bench_experiments(load_fitted(find_twin(twin)), settings, report)
    _print(figures, figure_rows(figures, EXPERIMENT_MEANINGS), as_json=as_json)


@app.command("fleet", epilog="Example: stallward bench fleet --nodes 200")
def fleet(
    nodes: Annotated[int, typer.Option(min=2, max=4096, help="Number of nodes.")] = 200,
    pairs: Annotated[int, typer.Option(min=1, max=100, help="Pairs of blocks on each.")] = 1,
    twin: Annotated[str, typer.Option(help="Fitted twin, file or name.")] = "detector-anon",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Watch and randomise many simulated nodes from one client, and count what is lost.

    Each has a service and a twin of its own. The exit code is 1 if a lost tick was not counted.
    """
    settings = FleetSettings(nodes=nodes, pairs=pairs, twin=twin, seed=seed)
    with output.progress("bench fleet") as report:
        figures = bench_fleet(settings, report)
    _print(figures, figure_rows(figures, FLEET_MEANINGS), as_json=as_json)
    if figures["ticks_uncounted"]:
        raise typer.Exit(1)


@app.command("rollout", epilog="Example: stallward bench rollout --nodes 1000")
def rollout(
    nodes: Annotated[int, typer.Option(min=8, max=4096, help="Number of nodes.")] = 1000,
    waves: Annotated[
        str, typer.Option(help="Nodes that have it after each wave, or shares of them.")
    ] = "1,5%,25%,100%",
    watch: Annotated[int, typer.Option(min=12, max=1000, help="Ticks to watch a wave.")] = 40,
    period: Annotated[
        float, typer.Option(min=0.05, max=60.0, help="Seconds between two ticks of a node.")
    ] = 2.5,
    twin: Annotated[str, typer.Option(help="Fitted twin, file or name.")] = "detector-anon",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Roll a bad and a good policy out to many simulated nodes, and count each of them.

    The exit code is 1 if a node was not counted as what it is, or the bad policy went on.
    """
    settings = RolloutSettings(
        nodes=nodes, waves=waves, watch_ticks=watch, period_s=period, twin=twin, seed=seed
    )
    with output.progress("bench rollout") as report:
        figures = bench_rollout(settings, report)
    _print(figures, figure_rows(figures, ROLLOUT_MEANINGS), as_json=as_json)
    uncounted = figures["bad_uncounted"] or figures["good_uncounted"]
    if uncounted or figures["bad_waves"] != 1.0:
        raise typer.Exit(1)


@app.command("scrape", epilog="Example: stallward bench scrape --nodes 1000")
def scrape(
    nodes: Annotated[int, typer.Option(min=1, max=4096, help="Number of nodes.")] = 1000,
    seconds: Annotated[float, typer.Option(min=30.0, max=3600.0, help="How long.")] = 180.0,
    interval: Annotated[
        int, typer.Option(min=1, max=300, help="Seconds between two scrapes of a node.")
    ] = 15,
    port: Annotated[
        int, typer.Option(min=1024, max=60_000, help="The first port of the nodes.")
    ] = 21_000,
    rules: Annotated[Path | None, typer.Option(help="Recording rules to evaluate.")] = None,
    as_json: Json = False,
) -> None:
    """Let a Prometheus of this machine scrape many simulated nodes, and measure it.

    The program `prometheus` must be installed.
    """
    settings = ScrapeSettings(
        nodes=nodes, length_s=seconds, interval_s=interval, first_port=port, rules=rules
    )
    with output.progress("bench scrape") as report:
        figures = bench_scrape(settings, report)
    _print(figures, figure_rows(figures, SCRAPING_MEANINGS), as_json=as_json)


@app.command("garbage", epilog="Example: stallward bench garbage --calls 1000000")
def garbage(
    calls: Annotated[int, typer.Option(min=100, max=10**9, help="Number of calls.")] = 100_000,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Send a daemon what no client would: broken messages, streams and connections.

    It needs root. The exit code is 1 if a process died.
    """
    with output.progress("bench garbage") as report:
        figures = bench_garbage(calls=calls, seed=seed, report=report)
    _print(figures, figure_rows(figures, GARBAGE_MEANINGS), as_json=as_json)
    if figures["service_died_share"] or figures["loop_deaths"]:
        raise typer.Exit(1)


@app.command("memory", epilog="Example: stallward bench memory")
def memory(as_json: Json = False) -> None:
    """Measure the memory of the daemon's imports, and of locking."""
    with output.progress("bench memory") as report:
        rows = bench_memory(report=report)
    if as_json:
        output.print_json([asdict(row) for row in rows])
        return
    output.table(
        ("process", "up to", "RSS MiB", "added", "private", "anonymous"),
        [
            (
                row.process,
                row.step,
                f"{row.rss_mib:.1f}",
                f"{row.added_mib:+.1f}",
                f"{row.private_mib:.1f}",
                f"{row.anon_mib:.1f}",
            )
            for row in rows
        ],
    )


@app.command("ab", epilog="Example: stallward bench ab --scenario detector-anon --pairs 12")
def ab(
    scenario: Annotated[
        str, typer.Option(help="Scenario that runs on the node.")
    ] = "detector-anon",
    baseline: Annotated[
        str, typer.Option(help="Controller or policy, as for `ab start`.")
    ] = "controller:none",
    treatment: Annotated[
        str, typer.Option(help="The same, of the other arm.")
    ] = "controller:rule",
    pairs: Annotated[int, typer.Option(min=2, max=1000, help="The most pairs of blocks.")] = 12,
    block_s: Annotated[
        float, typer.Option("--block-seconds", min=10.0, max=3600.0, help="Length of a block.")
    ] = 20.0,
    burn_in_s: Annotated[
        float, typer.Option("--burn-in-seconds", min=0.0, max=3600.0, help="Left out before it.")
    ] = 8.0,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Compare two controllers on a node that serves, until they certainly differ.

    The node is a sandbox under real pressure, served by one daemon that runs the experiment; needs
    root. The primary measure is the p99 of a block.
    """
    wanted = NodeExperiment(
        scenario=scenario,
        baseline=baseline,
        treatment=treatment,
        pairs=pairs,
        block_s=block_s,
        burn_in_s=burn_in_s,
        seed=seed,
    )
    with output.progress("bench ab") as report:
        figures = bench_experiment(wanted, report=report)
    _print(figures, figure_rows(figures, NODE_EXPERIMENT_MEANINGS), as_json=as_json)


@app.command("decisions", epilog="Example: stallward bench decisions --arms none,partition")
def decisions(
    arms: Annotated[str, typer.Option(help="The arms [all controllers], as for `compare`.")] = "",
    ticks: Annotated[int, typer.Option(min=10, max=10**6, help="Ticks of each.")] = 600,
    twin: Annotated[str, typer.Option(help="Fitted twin, file or name.")] = "detector-anon",
    as_json: Json = False,
) -> None:
    """Measure what a tick's decision costs each controller, on a twin node.

    It is the CPU time of the observation, the decision and the guard. `mpc` decides in a process
    of its own on a node; here its plans are made in the tick.
    """
    fitted = load_fitted(find_twin(twin))
    with output.progress("bench decisions") as report:
        costs = bench_decisions(fitted, arms or timed_arms(), ticks=ticks, report=report)
    if as_json:
        output.print_json([asdict(cost) for cost in costs])
        return
    rows = [
        (
            c.arm,
            f"{c.p50_us:.0f}",
            f"{c.p99_us:.0f}",
            "yes" if c.needs_processes else "no",
            "yes" if c.needs_threads else "no",
            "loop" if c.in_loop else "own process",
        )
        for c in costs
    ]
    headers = ("arm", "p50 us", "p99 us", "processes listed", "threads listed", "decides in")
    output.table(headers, rows)


@app.command("env", epilog="Example: stallward bench env --json")
def environment(
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Length of each measurement.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Measure environment steps per second.

    It measures the twin alone, with few and many nodes, and PPO training on it. It also prints
    the memory that a node takes, and how the time of a training is divided.
    """
    with output.progress("bench env") as report:
        figures = bench_environment(seconds=seconds, report=report)
    _print(figures, environment_rows(figures), as_json=as_json)
