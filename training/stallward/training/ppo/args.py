"""The settings of a training, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from stallward.agent.action_table import SET_POINTS
from stallward.env.gym.vec_env import RollIn
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.errors import TrainingError
from stallward.training.lagrangian import PriceRange
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.selection.arm import SET_POINT_TICKS
from stallward.training.selection.rollout import Outcome
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """The settings of the recipe; the names are those of stable-baselines3 where it has them."""

    seed: int = 1
    """The first seed; further seeds count up from it."""
    seeds: int = 1
    """The number of trainings, of which the best is kept."""
    total_steps: int = 4_000_000
    """Decisions per seed, over all environments. With more, the policy may do worse on
    applications that it was not trained on."""
    max_seconds: float = float("inf")
    """Wall time for all seeds together, without the evaluation. If it runs out, training stops
    early, and the same seed no longer gives the same policy."""
    n_envs: int = 1024
    """Twin nodes that are stepped together."""
    n_steps: int = 32
    """Decisions per node and rollout."""
    batch_size: int = 4096
    """Decisions per gradient step."""
    n_epochs: int = 3
    """Passes over each rollout, which take most of the time."""
    learning_rate: float = 1e-3
    """Learning rate at the start; it falls linearly to a tenth as the steps or time run out."""
    gamma: float = 0.98
    """Discount per decision of a second: a horizon of some 50 s, nearly as long as a turn."""
    gae_lambda: float = 0.95
    """The lambda of generalised advantage estimation."""
    ent_coef: float = 0.004
    """Entropy bonus."""
    held_decisions: float = 1.0
    """For how many decisions in a row each head explores in the same direction, on average."""
    clip_range: float = 0.2
    """The clip range of PPO's probability ratio."""
    slack: Slack = field(default_factory=Slack)
    """What is allowed beyond ample memory, as in the live verdict."""
    price_range: PriceRange = field(default_factory=PriceRange)
    """The bounds of every price."""
    price_rate: float = 0.03
    """How fast the prices follow what is suffered, per rollout."""
    auto_share: float = 0.6
    """Probability with which each head leaves things to ``partition`` at the start."""
    composing: SyntheticScenarioSettings = field(default_factory=SyntheticScenarioSettings)
    """The synthetic scenarios that are trained on in addition to the recorded ones."""
    others: RollIn = field(default_factory=lambda: RollIn(share=0.5))
    """The other controller under which episodes may begin in training."""
    critic_rollouts: int = 10
    """Rollouts in which only the critic is trained, before the actor is trained, too."""
    evaluation_episodes: int = 1024
    """Fresh nodes for the choice between seeds, over all scenarios."""
    settings: SimulationSettings = field(
        default_factory=lambda: SimulationSettings(
            action_table=SET_POINTS.name,
            ticks_per_action=SET_POINT_TICKS,
            episode_s=180.0,
            switch_cost=0.0,
            excess_price=0.5,
            slow_price=2.0,
        )
    )
    """Settings of episodes, reward and nuisance."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot run.

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
    """The policy kept, and how it compares with others."""

    policy: TrainedPolicy
    """The policy that was chosen."""
    evaluation: dict[str, dict[str, Outcome]]
    """The outcome of each arm in each scenario, on the same fresh nodes, which had no part in the
    choice. The arms are ``ppo``, ``static`` (the best static setting, searched separately),
    ``none`` and the rules; scenarios of validation twins come before those of training twins."""
    steps_per_s: float
    """Decisions per second of the training, the mean over seeds."""
