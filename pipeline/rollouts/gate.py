"""Groups without signal: recognised, and replaced by other draws within a budget (dynamic sampling).

A group whose rewards are all equal has advantages of zero. With ``acceleration.refill`` it is not trained on:
its draw ends, with the reason, and another one takes its place, until a step has had ``max_draws`` times its
groups; from there on the step takes what comes, in the order in which it comes. So the number of groups in a
step, and of completions, never changes (DAPO's dynamic sampling, arXiv:2503.14476, which has no budget; verl
bounds the batches it draws).

What it does to the gradient: it is not exact. Let q be the share of groups with signal. Without the gate the
mean over a step's groups is, in expectation, q times the mean over groups with signal, for the others add
nothing but to the denominator. With it a step is a sample of groups with signal: the same direction, tasks
weighted as before by their chance to have signal, but 1 / q times as long and less noisy. That holds where
every token counts alike in any step (loss_type grpo, dr_grpo). dapo, cispo and bnpo divide by tokens, and
those of groups without signal are no longer among them; scale_rewards batch takes its standard deviation over
groups with signal. The gate favours nothing that is short or fast: a step waits for the draws that replace
others as it waits for all.

With grpo.beta > 0 every group pulls towards the reference, with or without signal, and nothing is replaced:
the same rule as acceleration.skip_zero_advantages. Scores nothing and draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from configs.conditions import needs_no_kl
from configs.schema import Config
from pipeline.messages import Gated, RolloutGroup, gated_of, is_flat


class SignalGate:
    """Holds back groups without signal, at most ``budget`` in each step.

    ``spent`` is what steps had before a resume, by step (``Ledger.gated``). A group counts in the step that
    is next to be trained when its last score comes, whichever it was drawn for. A budget of 0 holds nothing.
    """

    def __init__(self, budget: int, spent: Mapping[int, Gated] | None = None) -> None:
        assert budget >= 0
        self._budget = budget
        self._steps: dict[int, Gated] = dict(spent or {})

    def holds(self, group: RolloutGroup, step: int) -> bool:
        """Whether ``group`` is to be replaced in ``step``; if so it is counted."""
        gated = self._steps.get(step, Gated())
        if gated.num_groups >= self._budget or not is_flat(group):
            return False
        self._steps[step] = gated + gated_of(group)
        return True

    def metrics(self, step: int) -> dict[str, float]:
        """What was replaced in ``step``; it is forgotten, with all before it. Nothing where none ever is."""
        if not self._budget:
            return {}
        gated = self._steps.get(step, Gated())
        self._steps = {number: other for number, other in self._steps.items() if number > step}
        return {
            "rollout/gated_groups": float(gated.num_groups),
            "rollout/gated_solved_groups": float(gated.num_solved),
            "rollout/gated_tokens": float(gated.num_tokens),
            "rollout/refill_budget_used": gated.num_groups / self._budget,
        }


def max_gated(config: Config) -> int:
    """Groups that may be replaced in one step (``acceleration.refill``)."""
    refill = config.acceleration.refill
    if not refill.enabled or needs_no_kl(config) is not None:
        return 0
    # The product may be a rounding error above a whole number.
    return math.ceil((refill.max_draws - 1) * config.prompts_per_step - 1e-9)
