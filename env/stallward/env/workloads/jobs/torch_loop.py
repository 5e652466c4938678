"""Trains a recommender (PyTorch) for ever; a unit is one batch.

Almost all of it is the vectors of the users and of the articles. A batch has random ones, and
Adam keeps two moments of each, so a batch reads and writes pages all over the memory.

Run: ``python -m stallward.env.workloads.jobs.torch_loop --mib 600 --seed 1 --report PATH``
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.report import work

_COMPONENTS: Final = 64
_BATCH: Final = 4096
_COPIES: Final = 3
"""A vector and its two moments."""
_VECTOR_BYTES: Final = 4 * _COMPONENTS * _COPIES


class Recommender:
    """The vectors of users and articles, half of the memory each.

    Args:
        mib: The size of the vectors together with their moments.
        seed: The seed of the vectors and the batches.
    """

    def __init__(self, *, mib: int, seed: int) -> None:
        self._random = torch.Generator().manual_seed(seed)
        count = max(2, (mib << 20) // _VECTOR_BYTES // 2)
        self.tables = [self._table(count) for _ in ("users", "articles")]
        vectors = [table.weight for table in self.tables]
        self._optimizer = torch.optim.SparseAdam(vectors, lr=0.01)

    def _table(self, count: int) -> torch.nn.Embedding:
        table = torch.nn.Embedding(count, _COMPONENTS, sparse=True)
        torch.nn.init.normal_(table.weight, generator=self._random)
        return table

    def step(self) -> float:
        """Learn from one batch of random ratings; return the loss."""
        users, articles = (
            table(torch.randint(table.num_embeddings, (_BATCH,), generator=self._random))
            for table in self.tables
        )
        ratings = torch.rand(_BATCH, generator=self._random)
        loss = torch.nn.functional.mse_loss((users * articles).mean(dim=1), ratings)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()  # type: ignore[no-untyped-call]
        return float(loss.detach())


def main(*, report: Path, mib: int = 600, seed: int = 1) -> None:
    """Train until killed."""
    torch.set_num_threads(1)
    work(report, lambda: Recommender(mib=mib, seed=seed).step)


if __name__ == "__main__":
    run_program(__doc__, main)
