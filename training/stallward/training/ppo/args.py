"""The settings of a training, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from stallward.agent.action_table import SET_POINTS
from stallward.agent.errors import UsageError
from stallward.agent.observation.encoder import BASIC, FEATURE_SETS, FeatureSet
from stallward.env.gym.spaces import find_features
from stallward.env.gym.vec_env import RollIn
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.training.errors import TrainingError
from stallward.training.lagrangian import PriceRange
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.ppo.recipe import Recipe
from stallward.training.selection.rollout import SET_POINT_TICKS, Outcome
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(Recipe):
    """The settings of a training: its recipe, its length, and what it is judged by."""

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
    slack: Slack = field(default_factory=Slack)
    """What is allowed beyond ample memory, as in the live verdict."""
    price_range: PriceRange = field(default_factory=PriceRange)
    """The bounds of every price."""
    composing: SyntheticScenarioSettings = field(default_factory=SyntheticScenarioSettings)
    """The synthetic scenarios that are trained on in addition to the recorded ones."""
    features: str = BASIC.name
    """What the policy reads of an observation, one of ``FEATURE_SETS``."""
    others: RollIn = field(default_factory=lambda: RollIn(share=0.5))
    """The other controller under which episodes may begin in training."""
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
            TrainingError: If a size is not positive, the batch does not divide the rollout, or
                there are no such features.
        """
        Recipe.__post_init__(self)
        if min(self.seeds, self.total_steps) < 1:
            raise TrainingError("Training sizes must be positive.")
        try:
            find_features(self.features)
        except UsageError as error:
            raise TrainingError(error.cause, next_step=error.next_step) from error

    @property
    def feature_set(self) -> FeatureSet:
        """What the policy reads of an observation."""
        return FEATURE_SETS[self.features]


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
