"""``stallward bench``: the cost of the daemon and the speed of the environment."""

from __future__ import annotations

from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json, Seed
from stallward.benchmarks.cli.fleets import fleet, rollout, scrape
from stallward.benchmarks.cli.harm import harm
from stallward.benchmarks.cli.kills import kills
from stallward.benchmarks.cli.text import print_figures
from stallward.benchmarks.cli.trace import trace
from stallward.evaluation.cli.plugins import PluggedGroup

# ---------- ``stallward bench memory``: what the daemon's processes hold


def memory(as_json: Json = False) -> None:
    """Measure the memory of the daemon's imports, and of locking."""
    from dataclasses import asdict  # noqa: PLC0415

    from stallward.benchmarks.memory import bench_memory  # noqa: PLC0415

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


# ---------- ``stallward bench pods``: what a tick costs with many pods in one slot


def pods(as_json: Json = False) -> None:
    """Measure a tick's processor time with 1, 10, 50 and 100 pods in one slot (needs root).

    The groups are real and its own, with one sleeping process each; it takes about a minute.
    """
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415
    from stallward.benchmarks.pods import MEANINGS, bench_pods  # noqa: PLC0415

    with output.progress("bench pods") as report:
        figures = bench_pods(report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)


app = typer.Typer(
    name="bench",
    cls=PluggedGroup,
    add_completion=False,
    help="Measure the daemon's own cost, or the environment's speed.",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Examples: stallward bench --json; stallward bench calls; stallward bench env",
)


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
    from stallward.benchmarks.overhead import bench_node, bench_rows  # noqa: PLC0415

    with output.progress("bench") as report:
        figures = bench_node(scenario=scenario, seconds=seconds, report=report)
    print_figures(figures, bench_rows(figures), as_json=as_json)


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
    from stallward.benchmarks.calls import MEANINGS, Clients, bench_calls  # noqa: PLC0415
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    clients = Clients(calls_per_s=rate, watchers=watchers, seconds=seconds)
    with output.progress("bench calls") as report:
        figures = bench_calls(clients, report=report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)


app.command("trace", epilog="Example: stallward bench trace --json")(trace)
app.command("pods", epilog="Example: stallward bench pods --json")(pods)
app.command("harm", epilog="Example: stallward bench harm --arms none,partition --rounds 5")(harm)
app.command("kills", epilog="Example: stallward bench kills --kills 1000")(kills)


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
    a block. The exit code is 1 if a limit killed, or if anything was left.
    """
    from stallward.benchmarks.limit_kills import MEANINGS, LimitTally, bench_limits  # noqa: PLC0415
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    tally = LimitTally()
    with output.progress("bench limits") as report:
        bench_limits(tally, blocks=count, seconds=seconds, report=report)
    for number, block in enumerate(tally.blocks):
        for line in block.left:
            output.note(f"block {number} ({block.program}): {line}")
    figures = tally.figures()
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
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
    from stallward.benchmarks.experiments import (  # noqa: PLC0415
        MEANINGS,
        ExperimentSettings,
        bench_experiments,
    )
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415
    from stallward.env.twin.inputs.fitted import load_fitted  # noqa: PLC0415
    from stallward.models.registry import find_twin  # noqa: PLC0415

    settings = ExperimentSettings(experiments=count, pairs=pairs, seed=seed)
    with output.progress("bench experiments") as report:
        figures = bench_experiments(load_fitted(find_twin(twin)), settings, report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)


app.command("fleet", epilog="Example: stallward bench fleet --nodes 200")(fleet)
app.command("rollout", epilog="Example: stallward bench rollout --nodes 1000")(rollout)
app.command("scrape", epilog="Example: stallward bench scrape --nodes 1000")(scrape)


@app.command("garbage", epilog="Example: stallward bench garbage --calls 1000000")
def garbage(
    calls: Annotated[int, typer.Option(min=100, max=10**9, help="Number of calls.")] = 100_000,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Send a daemon what no client would: broken messages, streams and connections.

    It needs root. The exit code is 1 if a process died.
    """
    from stallward.benchmarks.garbage.bench import MEANINGS, bench_garbage  # noqa: PLC0415
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

    with output.progress("bench garbage") as report:
        figures = bench_garbage(calls=calls, seed=seed, report=report)
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)
    if figures["service_died_share"] or figures["loop_deaths"]:
        raise typer.Exit(1)


app.command("memory", epilog="Example: stallward bench memory")(memory)


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
    from stallward.benchmarks.node_experiment import (  # noqa: PLC0415
        MEANINGS,
        NodeExperiment,
        bench_experiment,
    )
    from stallward.benchmarks.overhead import figure_rows  # noqa: PLC0415

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
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=as_json)


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
    from dataclasses import asdict  # noqa: PLC0415

    from stallward.benchmarks.decisions import bench_decisions, timed_arms  # noqa: PLC0415
    from stallward.env.twin.inputs.fitted import load_fitted  # noqa: PLC0415
    from stallward.models.registry import find_twin  # noqa: PLC0415

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
    from stallward.benchmarks.env_steps import bench_environment, environment_rows  # noqa: PLC0415

    with output.progress("bench env") as report:
        figures = bench_environment(seconds=seconds, report=report)
    print_figures(figures, environment_rows(figures), as_json=as_json)
