"""What a training is told, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from stallward.env.gym.vec_env import Others
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.errors import TrainingError
from stallward.training.imitation.teacher import Teaching
from stallward.training.lagrangian import PriceRange
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.selection.rollout import Outcome
from stallward.training.synthetic_scenarios import Composing


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """The recipe's settings."""

    seed: int = 1
    """First seed; further ones count up."""
    seeds: int = 1
    """How many trainings; the best of them is kept."""
    total_steps: int = 4_000_000
    """Decisions per seed, over all environments; with more, applications that nobody has met
    may fare worse."""
    max_seconds: float = float("inf")
    """Wall time for all seeds together; training stops early, evaluation comes on top, and the
    same seed gives another policy."""
    n_envs: int = 512
    """Twin nodes stepped together."""
    n_steps: int = 32
    """Decisions per node and rollout."""
    batch_size: int = 4096
    """Decisions per gradient step."""
    n_epochs: int = 3
    """Passes over a rollout; most of the time goes there."""
    learning_rate: float = 1e-3
    """At the start; falls linearly to a tenth as the steps or the time run out."""
    gamma: float = 0.99
    """Discount per decision of 0.2 s: a horizon of some 20 s, as long as a burst."""
    gae_lambda: float = 0.95
    """Of the generalised advantage estimate."""
    ent_coef: float = 0.0
    """Entropy bonus; what imitation leaves to chance is enough to explore with."""
    clip_range: float = 0.2
    """PPO's trust region."""
    slack: Slack = field(default_factory=Slack)
    """What is allowed beyond ample memory: what the live verdict asks for."""
    price_range: PriceRange = field(default_factory=PriceRange)
    """Bounds of every price."""
    price_rate: float = 0.03
    """How fast prices follow, per rollout."""
    teaching: Teaching = field(default_factory=Teaching)
    """What the actor learns before it goes on by itself."""
    pupil_lessons: int = 20
    """Lessons on where the pupil itself gets to."""
    composing: Composing = field(default_factory=Composing)
    """Scenarios that are trained on beside the recorded ones."""
    others: Others = field(default_factory=lambda: Others(share=0.5))
    """Who holds nodes before the policy does while it learns."""
    smoothing: float = 0.05
    """What it leaves to chance where it was taught, to explore with."""
    imitation_steps: int = 1500
    """Gradient steps in which it learns."""
    critic_rollouts: int = 20
    """Rollouts from which the critic alone learns, before the actor goes on."""
    evaluation_episodes: int = 1024
    """Fresh draws for the choice between seeds, over all scenarios."""
    settings: SimulationSettings = field(
        default_factory=lambda: SimulationSettings(excess_price=0.5, slow_price=2.0)
    )
    """Episodes, reward and nuisance."""

    def __post_init__(self) -> None:
        """Refuse what cannot run.

        Raises:
            TrainingError: If a size is not positive or the batch does not divide the rollout.
        """
        if min(self.seeds, self.total_steps, self.n_envs, self.n_steps, self.batch_size) < 1:
            raise TrainingError("Training sizes must be positive.")
        if (self.n_envs * self.n_steps) % self.batch_size:
            raise TrainingError(
                f"A rollout of {self.n_envs * self.n_steps} decisions is no multiple of the "
                f"batch of {self.batch_size}.",
                next_step="Choose a batch size that divides n_envs x n_steps.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """The policy kept, and how it and others did on the same draws, by which none was chosen.

    ``evaluation`` has ``ppo``, ``static`` (the best static setting, found with a search of its
    own), ``none`` and rules, each by scenario: those judged on, then those trained on.
    """

    policy: TrainedPolicy
    evaluation: dict[str, dict[str, Outcome]]
    steps_per_s: float
