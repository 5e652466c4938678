"""The kernel's layout as far as the page-cache programs depend on it."""

from __future__ import annotations

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.bpf import Btf, KernelFunction


class Kernel:
    """The layout of the running kernel.

    Args:
        btf: The kernel's types.
    """

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self.last_index_is_behind = False
        """Whether ``mm_filemap_get_pages`` gives the index after the last page: a bug that newer
        kernels have fixed ("filemap: fix the last_index of mm_filemap_get_pages")."""

    def tracepoint(self, name: str, arguments: int) -> KernelFunction:
        """Return a tracepoint that has this number of arguments.

        Raises:
            NodeError: If there is no such tracepoint.
        """
        hook = self._btf.tracepoint(f"btf_trace_{name}")
        if hook is None:
            raise NodeError(f"this kernel has no tracepoint {name} (Linux 6.12 or later has)")
        if len(hook.arguments) != arguments:
            raise NodeError(f"{name} has ({', '.join(hook.arguments)}) in this kernel")
        return hook

    def field(self, structure: str, field: str) -> int:
        """Return the offset of a field in a structure, in bytes.

        Raises:
            NodeError: If there is no such field.
        """
        offset = self._btf.field_offset(structure, field)
        if offset is None:
            raise NodeError(f"this kernel has no {structure}.{field}")
        return offset

    def large_folio(self) -> tuple[int, int] | None:
        """Return a large folio's flag and its page count's offset; ``None`` if unknown."""
        head = self._btf.enumerator("pageflags", "PG_head")
        count = self._btf.field_offset("folio", "_nr_pages", "_folio_nr_pages")
        return None if head is None or count is None else (1 << head, count)
