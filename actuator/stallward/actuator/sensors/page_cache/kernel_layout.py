"""What the page-cache programs must know of the kernel they are made for."""

from __future__ import annotations

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.bpf.btf import Btf, KernelFunction


class Kernel:
    """What the programs must know of this kernel.

    Args:
        btf: Its types.
    """

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self.last_index_is_behind = False
        """``mm_filemap_get_pages`` names the page behind the last one: a mistake in it that
        newer kernels have put right ("filemap: fix the last_index of mm_filemap_get_pages")."""

    def tracepoint(self, name: str, arguments: int) -> KernelFunction:
        """A tracepoint with so many arguments.

        Raises:
            NodeError: If there is none.
        """
        found = self._btf.tracepoint(f"btf_trace_{name}")
        if found is None:
            raise NodeError(f"this kernel has no tracepoint {name} (Linux 6.12 or later has)")
        if len(found.arguments) != arguments:
            raise NodeError(f"{name} has ({', '.join(found.arguments)}) in this kernel")
        return found

    def field(self, structure: str, field: str) -> int:
        """Bytes from the start of a structure to a field.

        Raises:
            NodeError: If there is none.
        """
        offset = self._btf.field_offset(structure, field)
        if offset is None:
            raise NodeError(f"this kernel has no {structure}.{field}")
        return offset

    def large_folio(self) -> tuple[int, int] | None:
        """The flag of a folio of many pages, and where their count is; ``None``: unknown."""
        head = self._btf.enumerator("pageflags", "PG_head")
        count = self._btf.field_offset("folio", "_nr_pages", "_folio_nr_pages")
        return None if head is None or count is None else (1 << head, count)
