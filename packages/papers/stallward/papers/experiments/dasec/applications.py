"""What the experiment of DASEC runs: latency-critical applications, and batch jobs beside them.

The source has memcached with 50 % SET, Masstree with 50 % GET, Silo with TPC-C, and image
classification, each in virtual machines of 16 processors. Here memcached is the same. In place of
Masstree, LMDB is an ordered store in memory; in place of Silo, RocksDB's optimistic transactions
run new orders and payments of TPC-C; a network with random weights classifies images. Each is one
process with several threads. A batch job is a program with as many threads as there are
processors, so that n jobs are a consolidation ratio of n beside the application.

The source's own setting has no batch jobs: several instances of one application, or of different
ones, share the processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from stallward.env.scenario.scenario import (
    BackgroundSpec,
    Command,
    LatencyLines,
    Need,
    ProtectedSpec,
    SandboxSpec,
    Scenario,
    Slo,
    UnitLines,
)

Application = Literal["memcached", "ordered", "transactional", "classifier"]
APPLICATIONS: Final[tuple[Application, ...]] = get_args(Application)
INSTANCE_APPLICATIONS: Final[tuple[Application, ...]] = ("memcached", "ordered")
"""The applications of which several instances run side by side."""
MOST_INSTANCES: Final = 6
Division = Literal["thread", "group"]
"""How the CPU is divided: thread by thread, as in the source's kernel, or first between the
application and each job as groups, as containers have it."""

BURN_IN_S: Final = 1.0
MEASURED_S: Final = 3.0
SLO_MS: Final = 5.0
"""A target must be configured; no controller of the experiment looks at it."""
WORKERS: Final = 3
"""The workers of a store, beside the thread that receives: four threads, as memcached has."""
LOAD_PRIORITY: Final = 10
"""The real-time priority of the load generator. The source has its clients elsewhere, where no
batch job delays them; without it, most of the p99 is the load generator's own waiting."""
PAIRS: Final = 8
"""How many keys a request to one of several instances sets and how many it gets; the load generator
has no more. With one of each, the load generators take two thirds of the CPU time."""
_KEYS: Final = 100_000
_IMAGES: Final = 40
_WIDTH: Final = 256
_DEPTH: Final = 6
_MIB: Final = 1 << 20
_LIMIT_MIB: Final = 900
"""Enough memory for all: only the CPU is shared."""
_SOCKET: Final = "{run}/server.sock"
_REQUESTS: Final = "{run}/requests.lines"
_MODULES: Final = ("{python}", "-m")
_LATENCY: Final = LatencyLines(path=_REQUESTS, start="0", sent="1", end="2", ok="3")
_CHRT: Final = Need(program="chrt", package="util-linux")
_NEEDS: Final = (Need(program="stress-ng", package="stress-ng"), _CHRT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """One application and its requests."""

    server: tuple[str, ...]
    needs: tuple[Need, ...]
    request: str
    rate_per_s: int
    """About a tenth of the CPU time of two processors at most: with four batch threads on each, a
    thread of the application still has its fair share."""
    instance_request: str = ""
    """A request to one of several instances."""
    prepare: tuple[tuple[str, ...], ...] = ()
    keys: int = _KEYS
    until: str = "\n"
    ok_prefix: str = "ok"


def _store(
    name: str, header: str, package: str, request: str, rate_per_s: int, instance_request: str = ""
) -> _Service:
    build = "stallward.env.workloads.services.stores.build"
    return _Service(
        server=("{data}/store", _SOCKET, "{run}", str(_KEYS), str(WORKERS)),
        needs=(Need(program="cc", package="gcc"), Need(program=header, package=package)),
        request=request,
        rate_per_s=rate_per_s,
        instance_request=instance_request,
        prepare=((*_MODULES, build, name, "{data}/store"),),
    )


_SERVICES: Final[dict[Application, _Service]] = {
    "memcached": _Service(
        server=("memcached", "-u", "root", "-m", "128", "-t", "4", "-s", _SOCKET),
        needs=(Need(program="memcached", package="memcached"),),
        request=f"set k%K 0 0 64\r\n{64 * 'x'}\r\nget k%K\r\n",
        rate_per_s=3000,
        instance_request=(PAIRS - 1) * f"set k%K 0 0 64 noreply\r\n{64 * 'x'}\r\n"
        + f"set k%K 0 0 64\r\n{64 * 'x'}\r\nget{PAIRS * ' k%K'}\r\n",
        until="END\r\n",
        ok_prefix="STORED",
    ),
    "ordered": _store(
        "ordered",
        "/usr/include/lmdb.h",
        "liblmdb-dev",
        "set %K get %K\n",
        rate_per_s=1500,
        instance_request=" ".join(PAIRS * ["set %K get %K"]) + "\n",
    ),
    "transactional": _store(
        "transactional", "/usr/include/rocksdb/c.h", "librocksdb-dev", "tx %K\n", rate_per_s=300
    ),
    "classifier": _Service(
        server=(
            *_MODULES,
            "stallward.env.workloads.detector_server",
            "--data",
            "{data}",
            "--socket",
            _SOCKET,
            "--threads",
            "2",
        ),
        needs=(
            Need(program="python:onnx", package="onnx"),
            Need(program="python:onnxruntime", package="onnxruntime"),
        ),
        request="%K\n",
        rate_per_s=60,
        prepare=(
            (
                *_MODULES,
                "stallward.env.workloads.detector_data",
                "{data}",
                "--images",
                str(_IMAGES),
                "--width",
                str(_WIDTH),
                "--depth",
                str(_DEPTH),
                "--seed",
                "1",
            ),
        ),
        keys=_IMAGES,
    ),
}


def dasec_scenario(application: Application, jobs: int, cpus: int) -> Scenario:
    """An application beside batch jobs.

    Args:
        application: The application.
        jobs: How many batch jobs, which is how many batch threads there are for each processor.
        cpus: How many processors there are.
    """
    service = _SERVICES[application]
    return Scenario(
        name=f"dasec-{application}-{jobs}",
        summary=f"{application} beside {jobs} batch threads on each processor",
        sandbox=SandboxSpec(
            limit_bytes=_LIMIT_MIB * _MIB, ample_bytes=_LIMIT_MIB * _MIB, swap_bytes=0
        ),
        protected=ProtectedSpec(
            prepare=service.prepare,
            server=Command(argv=service.server),
            ready=_SOCKET,
            load=_load(service, service.request, service.rate_per_s),
            latency=_LATENCY,
            slo=Slo(latency_ms=SLO_MS),
            workers=WORKERS,
        ),
        background=tuple(_job(number, cpus) for number in range(jobs)),
        needs=(*service.needs, *_NEEDS),
        application=application,
    )


def instances_scenario(
    applications: Sequence[Application], rates_per_s: Sequence[float]
) -> Scenario:
    """Several instances side by side, each with a load generator of its own, and no batch job.

    Args:
        applications: The application of each instance.
        rates_per_s: How many requests a second each gets.
    """
    services = [_SERVICES[application] for application in applications]
    first, *others = (
        ProtectedSpec(
            name=f"instance{number}",
            prepare=service.prepare,
            server=Command(argv=service.server),
            ready=_SOCKET,
            # Its number ends the seed, so that instances have arrivals of their own.
            load=_load(service, service.instance_request, rate_per_s, f"{{seed}}{number}"),
            latency=_LATENCY,
            slo=Slo(latency_ms=SLO_MS),
            workers=WORKERS,
        )
        for number, (service, rate_per_s) in enumerate(zip(services, rates_per_s, strict=True))
    )
    return Scenario(
        name="dasec-instances",
        summary=f"{len(services)} instances side by side",
        sandbox=SandboxSpec(
            limit_bytes=_LIMIT_MIB * _MIB, ample_bytes=_LIMIT_MIB * _MIB, swap_bytes=0
        ),
        protected=first,
        others=tuple(others),
        background=(),
        needs=tuple(dict.fromkeys(need for one in services for need in (*one.needs, _CHRT))),
    )


def _load(service: _Service, request: str, rate_per_s: float, seed: str = "{seed}") -> Command:
    options = {
        "--socket": _SOCKET,
        "--request": request,
        "--until": service.until,
        "--ok-prefix": service.ok_prefix,
        "--keys": str(service.keys),
        "--rate": f"{rate_per_s:g}",
        "--connections": "16",
        "--seed": seed,
        "--out": _REQUESTS,
    }
    words = (word for option in options.items() for word in option)
    return Command(argv=("chrt", "--fifo", str(LOAD_PRIORITY), "{workloads}/load", *words))


def _job(number: int, cpus: int) -> BackgroundSpec:
    """A batch job, which wants nothing but processor time."""
    report = f"{{run}}/batch{number}.lines"
    loop = (*_MODULES, "stallward.env.workloads.program_loop", "--unit", "cpu", "--report", report)
    places = ("--temp-path", "{scratch}", "--timeout", "3600")
    program = ("stress-ng", "--cpu", str(cpus), "--cpu-method", "int64", *places)
    return BackgroundSpec(
        name=f"batch{number}",
        command=Command(argv=(*loop, "--", *program)),
        units=UnitLines(path=report, name="seconds of processor time"),
    )
