"""Which application's memory lives in swap, and how much of it. Pure.

Source: Su-Wei Yang, "Memory Contention Aware Swap Space Management", NTUST 2019, slides 27 to 29.
What all applications need beyond the memory of the system must be in swap:

    SWAP_req = sum of MEM(i) - MEM_sys

It is assigned from the application with the lowest priority upward: application i has the share

    alpha_i = SWAP_req / MEM(i) if SWAP_req < MEM(i), else 1

of its memory in swap, SWAP_req falls by alpha_i * MEM(i), and so on until nothing is left of it.
"Average distribute", which the document compares it with, spreads SWAP_req evenly.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallward.agent.control_law.water_filling import water_fill


def required_swap(memory: Sequence[float], system: float) -> float:
    """SWAP_req: what the applications need beyond the memory of the system; 0 where all fits.

    Args:
        memory: MEM(i), what each application needs, in any unit.
        system: MEM_sys, the memory of the system, in the same unit.
    """
    return max(sum(memory) - system, 0.0)


def assign_swap(
    memory: Sequence[float], order: Sequence[int], required: float
) -> tuple[float, ...]:
    """The swap ratio alpha_i of each application, from the lowest priority upward.

    Args:
        memory: MEM(i), what each application needs.
        order: The applications by priority, the highest first. One that is left out keeps all of
            its memory, as the protected application does.
        required: SWAP_req, in the unit of ``memory``.
    """
    ratios = [0.0] * len(memory)
    for i in reversed(order):
        if required <= 0.0:
            break
        if memory[i] > 0.0:
            ratios[i] = required / memory[i] if required < memory[i] else 1.0
            required -= ratios[i] * memory[i]
    return tuple(ratios)


def given_swap(memory: Sequence[float], order: Sequence[int], alpha: float) -> tuple[float, ...]:
    """The swap ratios if that of the application with the lowest priority is given.

    The others have none, whatever is left of SWAP_req.

    Args:
        memory: MEM(i), what each application needs; one that needs nothing has ended.
        order: The applications by priority, the highest first.
        alpha: The given ratio.
    """
    lowest = next((i for i in reversed(order) if memory[i] > 0.0), None)
    return tuple(alpha if i == lowest else 0.0 for i in range(len(memory)))


def average_swap(memory: Sequence[float], required: float) -> tuple[float, ...]:
    """The swap ratio of each application if all have the same amount in swap.

    The document only names this way. Here the amounts are equal, and what an application is too
    small for is spread over the others.

    Args:
        memory: What each application needs.
        required: SWAP_req, in the same unit.
    """
    if not memory:
        return ()
    amounts, _ = water_fill(required, memory, [0.0] * len(memory))
    return tuple(
        amount / size if size > 0.0 else 0.0 for amount, size in zip(amounts, memory, strict=True)
    )
