"""The commands of ``stallward experiment``: what they are asked for, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json, Seed
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageTable,
    write_experiment_page,
)
from stallward.evaluation.results.serialise import save, to_json
from stallward.papers.experiments.compile.experiment import CompileRequest, run_compile_experiment
from stallward.papers.experiments.compile.page import arms_table, compile_page
from stallward.papers.experiments.compile.steps import SIZES_MIB
from stallward.papers.experiments.contention import (
    contention_rows,
    measure_configuration,
    measure_scenario,
)
from stallward.papers.experiments.dasec.applications import INSTANCE_APPLICATIONS, Division
from stallward.papers.experiments.dasec.experiment import (
    DasecExperimentRequest,
    run_dasec_experiment,
)
from stallward.papers.experiments.dasec.instances.experiment import (
    MEASURED_S,
    REPEATS,
    InstancesRequest,
    run_instances_experiment,
)
from stallward.papers.experiments.dasec.instances.page import instances_page
from stallward.papers.experiments.dasec.instances.steps import (
    parse_counts,
    parse_loads,
    parse_mixes,
)
from stallward.papers.experiments.dasec.instances.tables import (
    cells_table,
    over_cells_table,
)
from stallward.papers.experiments.dasec.page import dasec_page
from stallward.papers.experiments.dasec.steps import parse_applications
from stallward.papers.experiments.dasec.tables import latency_table, summary_table, thread_table
from stallward.papers.experiments.latd.experiment import LatdExperimentRequest, run_latd_experiment
from stallward.papers.experiments.latd.page import latd_page
from stallward.papers.experiments.latd.steps import SWAPPED_HOG
from stallward.papers.experiments.latd.steps import Part as LatdPart
from stallward.papers.experiments.latd.tables import memory_table, scenario_table, sweep_table
from stallward.papers.experiments.latd.workload import Machine
from stallward.papers.experiments.runs import ExperimentResult
from stallward.papers.experiments.swap.configurations import find_configuration
from stallward.papers.experiments.swap.experiment import (
    Part,
    SwapExperimentRequest,
    run_swap_experiment,
)
from stallward.papers.experiments.swap.page import (
    alpha_table,
    case_study_table,
    larger_table,
    swap_page,
)
from stallward.training.pipeline.outputs import check_writable

# ---------- What the commands of ``stallward experiment`` show in the end


def show_experiment(
    result: ExperimentResult,
    page: ExperimentPage,
    tables: Sequence[PageTable],
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Write the page of an experiment, and print its tables and headline."""
    path = out / "report.html"
    write_experiment_page(page, path)
    if as_json:
        output.print_json(to_json(result))
        return
    for table in tables:
        output.table(table.headers, table.rows)
        output.line()
    output.line(page.headline)
    if result.done_runs < result.planned_runs:
        output.note(
            f"{result.done_runs} of {result.planned_runs} runs are finished; the same command "
            "continues."
        )
    output.line(f"{out / 'result.json'}  {path}")


_DEFAULT_DIR = Path("build/experiment")

Repeats = Annotated[
    int, typer.Option(min=1, max=1000, help="How often each setting runs with each arm.")
]
Minutes = Annotated[
    float, typer.Option(min=0.0, max=LONGEST_S / 60, help="Begin no run after so long.")
]
Out = Annotated[
    Path, typer.Option(help="New or resumable folder for the runs, the result and the page.")
]


def contention(
    workload: Annotated[
        str, typer.Argument(help="A scenario, or a configuration of `experiment swap-assign`.")
    ] = "case-study",
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="How often everything runs.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=2.0, max=LONGEST_S, help="Measured length of a scenario's runs.")
    ] = 15.0,
    out: Annotated[
        Path | None,
        typer.Option(help="The file for the result [build/experiment/contention-WORKLOAD.json]."),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Measure how much applications suffer from each other.

    Each runs alone, then all together; the contention degree is by how much longer it then takes,
    for each of its sub-tasks. The arm `swap-assign:path=FILE` takes its priorities and needs from
    the file.
    """
    configuration = find_configuration(workload)
    scenario = None if configuration is not None else load_scenario(workload)
    path = out or _DEFAULT_DIR / f"contention-{Path(workload).stem}.json"
    check_writable(path)
    with output.progress("experiment contention") as report:
        if configuration is not None:
            result = measure_configuration(
                configuration, repeats=repeats, seed=seed, report=report
            )
        elif scenario is not None:
            result = measure_scenario(
                scenario, repeats=repeats, seconds=seconds, seed=seed, report=report
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, result)
    if as_json:
        output.print_json(to_json(result))
        return
    output.table(*contention_rows(result))
    output.line()
    output.line(f"{path}")


def swap_assign(
    part: Annotated[
        Part, typer.Option(help="Which of the experiments, and in what order data is used.")
    ] = "all",
    repeats: Repeats = 5,
    minutes: Minutes = 120.0,
    out: Out = _DEFAULT_DIR / "swap-assign",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Repeat the experiments of "Memory Contention Aware Swap Space Management" (NTUST 2019).

    Three applications that need 9/8 of the memory, and four that need 4/3 of it with 5 to 256
    sub-tasks each, run without management, with MaT, with swap spread evenly, and with scheduling
    by contention and direct swap access, each alone and both together. In the case study programs
    use their data from end to end, at random, or by Zipf's law. `--part alpha` runs all three of
    these with direct swap access and given shares, 0 to 0.5, of the lowest priority in swap. The
    page has the document's figures and ours. The same command continues where it stopped.
    """
    request = SwapExperimentRequest(
        out=out, part=part, repeats=repeats, minutes=minutes, seed=seed
    )
    with output.progress("experiment swap-assign") as report:
        result = run_swap_experiment(request, report)
    tables = [] if result.case_study is None else [case_study_table(result.case_study)]
    if result.larger:
        tables.append(larger_table(result))
    if result.alpha:
        tables.append(alpha_table(result.alpha))
    show_experiment(result, swap_page(result), tables, out, as_json=as_json)


def compile_sweep(
    sizes: Annotated[
        str, typer.Option(help="Sizes of memory in MiB, separated by commas [seven, 48 to 192].")
    ] = "",
    repeats: Repeats = 5,
    minutes: Minutes = 120.0,
    out: Out = _DEFAULT_DIR / "compile",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Repeat the compilations of a thesis on working sets (Birkbeck 2011).

    `make -j3` compiles the same files with less and less memory, on the kernel as it is and under
    each of the thesis's heuristics, which act from user space. The page has the times as box
    plots, the thesis's fit, and faults, idle processors and disk of each arm. The same command
    continues where it stopped.
    """
    request = CompileRequest(
        out=out,
        sizes_mib=_mib(sizes) or SIZES_MIB,
        repeats=repeats,
        minutes=minutes,
        seed=seed,
    )
    with output.progress("experiment compile") as report:
        result = run_compile_experiment(request, report)
    tables = [arms_table(result)] if result.sizes else []
    show_experiment(result, compile_page(result), tables, out, as_json=as_json)


def _mib(text: str) -> tuple[int, ...]:
    """Sizes in MiB, from ``64,96``."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} names no sizes; write whole numbers of MiB, such as 64,96.",
            param_hint="--sizes",
        ) from None


def latd(
    part: Annotated[LatdPart, typer.Option(help="Which of the experiments.")] = "all",
    disk_ops: Annotated[
        int | None,
        typer.Option(min=10, help="Operations a second of the disk.", show_default="as it is"),
    ] = None,
    small_swap: Annotated[
        bool,
        typer.Option("--small-swap", help="Swap of an eighth of the memory, which hogs fill."),
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=5.0, max=600.0, help="How long each run is measured.")
    ] = 20.0,
    repeats: Repeats = 3,
    minutes: Minutes = 120.0,
    out: Out = _DEFAULT_DIR / "latd",
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Repeat the experiments of the latd thesis (UNC Charlotte 2019).

    A detector runs alone, beside hogs of anonymous memory and of page cache, and under latd's
    three algorithms; then beside hogs of several sizes, and with several values of the swappiness.
    The page has the thesis's figures and ours. The same command continues where it stopped.
    """
    request = LatdExperimentRequest(
        out=out,
        part=part,
        repeats=repeats,
        minutes=minutes,
        seed=seed,
        machine=Machine(disk_ops_per_s=disk_ops, small_swap=small_swap),
        measured_s=seconds,
    )
    with output.progress("experiment latd") as report:
        result = run_latd_experiment(request, report)
    tables = []
    if result.scenarios:
        tables += [scenario_table(result), memory_table(result)]
    if result.utilisation:
        tables.append(sweep_table(result.utilisation, "wanted", share=True))
    if result.swappiness:
        tables.append(
            sweep_table({str(SWAPPED_HOG): result.swappiness}, "swappiness", share=False)
        )
    show_experiment(result, latd_page(result), tables, out, as_json=as_json)


def dasec(
    applications: Annotated[
        str,
        typer.Option(
            help="Which, separated by commas [memcached,ordered,transactional,classifier]."
        ),
    ] = "",
    instances: Annotated[
        str,
        typer.Option(
            help="Run so many instances side by side and no batch job, e.g. 2,4,6.",
            show_default="beside batch threads",
        ),
    ] = "",
    mix: Annotated[
        str,
        typer.Option(help="With --instances: of the same application, or of each in turn."),
    ] = "same,mixed",
    load: Annotated[
        str,
        typer.Option(
            help="With --instances: the shares of all CPUs that they are to use together."
        ),
    ] = "0.4,0.7,0.95",
    seconds: Annotated[
        float,
        typer.Option(min=1.0, max=600.0, help="With --instances: how long each run is measured."),
    ] = MEASURED_S,
    division: Annotated[
        Division,
        typer.Option(help="How the CPU is divided: thread by thread, or between groups first."),
    ] = "thread",
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="How often each setting runs with each arm.",
            show_default=f"3; of instances {REPEATS}",
        ),
    ] = None,
    minutes: Minutes = 120.0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="New or resumable folder for the runs, the result and the page.",
            show_default="build/experiment/dasec, with --instances dasec-instances",
        ),
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Repeat the experiment of DASEC (Symposium on Cloud Computing).

    A cache, an ordered store, a transactional store and an image classifier, each with several
    threads, run beside 0, 1, 2 and 4 batch threads on each processor: without control, with
    borrowed virtual time, with all of DASEC's answers, with each alone, and beside a controller of
    the memory. With `--instances`, several instances run side by side instead, as in the source,
    all of them under the controller. The page has the source's figures and ours. The same command
    continues where it stopped.
    """
    if instances:
        several = InstancesRequest(
            out=out or _DEFAULT_DIR / "dasec-instances",
            applications=parse_applications(applications or ",".join(INSTANCE_APPLICATIONS)),
            counts=parse_counts(instances),
            mixes=parse_mixes(mix),
            loads=parse_loads(load),
            measured_s=seconds,
            division=division,
            repeats=repeats or REPEATS,
            minutes=minutes,
            seed=seed,
        )
        _dasec_instances(several, as_json=as_json)
        return
    request = DasecExperimentRequest(
        out=out or _DEFAULT_DIR / "dasec",
        applications=parse_applications(applications),
        division=division,
        repeats=repeats or 3,
        minutes=minutes,
        seed=seed,
    )
    with output.progress("experiment dasec") as report:
        result = run_dasec_experiment(request, report)
    tables = [latency_table(result), thread_table(result)]
    if result.summary:
        tables.append(summary_table(result))
    show_experiment(result, dasec_page(result), tables, request.out, as_json=as_json)


def _dasec_instances(request: InstancesRequest, *, as_json: bool) -> None:
    with output.progress("experiment dasec") as report:
        result = run_instances_experiment(request, report)
    tables = [cells_table(result), over_cells_table(result)]
    show_experiment(result, instances_page(result), tables, request.out, as_json=as_json)
