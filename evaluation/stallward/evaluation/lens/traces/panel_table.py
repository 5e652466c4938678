"""Which columns the pictures of traces show: a table."""

from __future__ import annotations

from typing import Final

from stallward.evaluation.lens.traces.panel import (
    PanelSpec,
    as_is,
    busy_percent,
    growth,
    growth_mib,
    size_mib,
)


def _stalls(place: str) -> PanelSpec:
    return PanelSpec(
        title="Stalled" if place == "node" else "Stalled, in the group",
        unit="% of the time",
        values=busy_percent,
        columns={
            f"{place}_psi_{resource}_{line}_us": f"{resource}, {line}"
            for resource in ("memory", "io")
            for line in ("some", "full")
        },
    )


NODE: Final = (
    PanelSpec(
        title="Memory",
        unit="MiB",
        values=size_mib,
        columns={
            "node_memory_used_bytes": "used",
            "node_memory_buffer_bytes": "buffers",
            "node_memory_cache_bytes": "cache",
            "node_memory_free_bytes": "free",
        },
        stacked=True,
    ),
    PanelSpec(
        title="Swap in use",
        unit="MiB",
        values=size_mib,
        columns={"node_swap_used_bytes": "node", "group_swap_bytes": "group"},
    ),
    PanelSpec(
        title="Group",
        unit="MiB",
        values=size_mib,
        columns={
            "group_memory_usage_bytes": "in use",
            "group_memory_limit_bytes": "limit",
            "group_anon_bytes": "anonymous",
            "group_file_bytes": "files",
        },
    ),
    _stalls("node"),
    _stalls("group"),
    PanelSpec(
        title="Paging",
        unit="pages per second",
        values=growth,
        columns={
            "node_swap_in_pages": "swapped in",
            "node_swap_out_pages": "swapped out",
            "node_refault_file_pages": "file refaults",
            "node_refault_anon_pages": "anonymous refaults",
            "node_steal_direct_pages": "direct reclaim",
        },
    ),
    PanelSpec(
        title="Page cache",
        unit="lookups per second",
        values=growth,
        columns={"node_page_cache_hits": "hits", "node_page_cache_misses": "misses"},
    ),
)
PSI: Final = tuple(
    PanelSpec(
        title=f"{name}{', in the group' if place == 'group' else ''}",
        unit="% of the time",
        values=busy_percent,
        columns={f"{place}_psi_{resource}_{line}_us": line for line in ("some", "full")},
        faint={f"{place}_psi_{resource}_some_avg10_percent": "some, avg10 of the kernel"},
    )
    for place in ("node", "group")
    for resource, name in (("memory", "Memory"), ("io", "I/O"), ("cpu", "CPU"))
)
_RATES: Final = (
    PanelSpec(
        title="Page faults",
        unit="per second",
        values=growth,
        columns={"minor_faults": "minor", "major_faults": "major"},
    ),
    PanelSpec(
        title="Page cache",
        unit="lookups per second",
        values=growth,
        columns={"page_cache_hits": "hits", "page_cache_misses": "misses"},
    ),
    PanelSpec(
        title="Storage",
        unit="MiB/s",
        values=growth_mib,
        columns={"io_read_bytes": "read", "io_written_bytes": "written"},
    ),
    PanelSpec(
        title="Processor time",
        unit="% of one CPU",
        values=busy_percent,
        columns={"cpu_usage_us": "all threads"},
    ),
)
ONE_PROCESS: Final = (
    PanelSpec(
        title="Memory",
        unit="MiB",
        values=size_mib,
        columns={
            "rss_bytes": "RSS",
            "pss_bytes": "PSS",
            "private_bytes": "USS",
            "swap_bytes": "swap",
        },
    ),
    PanelSpec(
        title="Resident pages",
        unit="MiB",
        values=size_mib,
        columns={"anon_bytes": "anonymous and shared", "file_bytes": "files"},
        stacked=True,
    ),
    *_RATES,
)
ONE_PAGETYPE: Final = (
    PanelSpec(
        title="By mapping",
        unit="MiB",
        values=size_mib,
        columns={
            "anon_mapping_bytes": "anonymous",
            "file_mapping_bytes": "files",
            "shmem_mapping_bytes": "shared memory",
            "stack_bytes": "stack",
        },
        stacked=True,
    ),
    PanelSpec(
        title="By page",
        unit="MiB",
        values=size_mib,
        columns={"anon_bytes": "anonymous and shared", "file_bytes": "files"},
        stacked=True,
    ),
    PanelSpec(
        title="State",
        unit="MiB",
        values=size_mib,
        columns={
            "private_dirty_bytes": "private, dirty",
            "private_clean_bytes": "private, clean",
            "referenced_bytes": "referenced",
            "swap_bytes": "in swap",
        },
    ),
)
PAGE_CACHE: Final = (
    PanelSpec(
        title="Hit ratio of the node",
        unit="share of lookups",
        values=as_is,
        columns={"hit_ratio": "hits"},
    ),
    PanelSpec(
        title="Lookups of the node",
        unit="per second",
        values=growth,
        columns={"page_cache_hits": "hits", "page_cache_misses": "misses"},
    ),
    PanelSpec(
        title="Page cache",
        unit="MiB",
        values=size_mib,
        columns={"memory_cached_bytes": "cached", "memory_buffer_bytes": "buffers"},
    ),
)
