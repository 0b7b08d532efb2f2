"""What TRL's trainer did, written down in the main job's terms: run.db, metrics.jsonl, samples.jsonl.

TRL shows its work in two places, and ``BaselineAccount`` stands in both: as the reward function it sees
every completion with its task, as a callback it sees steps begin, end and be logged. The rollout metrics
come from the main job's own code. Every ``output.save_steps`` steps it keeps the model as it is then, weights
only, for a benchmark to measure over time: nothing can be resumed from them. Decides nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from configs.schema import Config
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.host import spans
from pipeline.host.files import let_others_read, written_whole
from pipeline.messages import Completion, RolloutGroup, StepResult
from pipeline.record.checkpoints import remove_unless_kept
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter, StepRate, log_samples
from pipeline.record.progress import Progress
from pipeline.record.tracking import Tracking
from pipeline.rollouts.batch import batch_metrics, make_batch, scored
from pipeline.rollouts.producer import make_group
from rewards.breaker import CircuitBreaker
from rewards.result import RewardResult
from rewards.scorer import Scorer
from rewards.trl import TrlCompletion, completion_text, score_completions, trl_rewards

# TRL's name -> ours. Its "kl" is the one to the reference, ours to the behaviour policy, so it is not here.
_METRIC_NAMES = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/learning_rate",
    "clip_ratio/region_mean": "train/clipped_share",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredBatch:
    """A step's groups as they went to the trainer, and what their scores cost."""

    step: int
    groups: tuple[RolloutGroup, ...]
    num_tokens: int
    rewards_s: float


@dataclass(eq=False, kw_only=True)
class BaselineAccount(TrainerCallback):
    """Reward function (``code_reward``) and callback of one run of TRL's trainer.

    ``end_ids`` are the tokens that end a completion. ``open_metrics`` starts the run's clock, so it is called
    when training begins: trainer and engine are up then, as the main job's stages are. TRL generates one
    batch an optimiser step, its completions in order of groups.
    """

    config: Config
    tasks: Sequence[Task]
    scorer: Scorer
    prompt_ids: Callable[[Task], tuple[int, ...]]
    end_ids: frozenset[int]
    ledger: Ledger
    open_metrics: Callable[[], MetricsWriter]
    samples: Path
    progress: Progress
    tracking: Tracking = field(default_factory=lambda: Tracking(()))

    def __post_init__(self) -> None:
        self._tasks = {task.task_id: task for task in self.tasks}
        self._metrics: MetricsWriter | None = None
        self._begun_s = self._ended_s = time.perf_counter()
        self._batch: _ScoredBatch | None = None
        self._breaker = CircuitBreaker()
        self._rate: StepRate | None = None
        self._took_s: dict[str, float] = {}

    def watch(self, trainer: Any) -> None:
        """Time what TRL's ``trainer`` does before it scores: generation, and weights on the way to its vLLM.

        Between generation and scoring TRL computes log-probabilities of the policy (with vLLM) and of the
        reference (with ``grpo.beta``): these are forward passes of training, as in the main job.
        """
        trainer._generate = self.timed("generation", trainer._generate)
        if trainer.use_vllm:
            vllm = trainer.vllm_generation
            vllm.sync_weights = self.timed("weights", vllm.sync_weights)

    def timed(self, what: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """``act``, whose seconds count as the step's for ``what``."""

        def act_timed(*args: object, **kwargs: object) -> Any:
            began = time.perf_counter()
            try:
                return act(*args, **kwargs)
            finally:
                self._took_s[what] = self._took_s.get(what, 0.0) + time.perf_counter() - began

        return act_timed

    def code_reward(
        self,
        prompts: Sequence[object],
        completions: Sequence[TrlCompletion],
        *,
        task_id: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        trainer_state: TrainerState,
        **columns: object,
    ) -> list[float | None]:
        """Score a step's completions one after the other and record their groups (TRL's signature).

        Raises StageError when no group has two completions that could be scored, RewardsBrokenError when
        most items of late could not.
        """
        step = trainer_state.global_step + 1
        self.progress.activity(f"step {step}: scoring {len(completions)} completions")
        generated_s = time.perf_counter()
        prefill = self.config.generation.assistant_prefill
        results = score_completions(self._tasks, self.scorer, task_id[:1], completions[:1], prefill)
        spans.mark("driver", spans.FIRST_SCORE)
        results += score_completions(self._tasks, self.scorer, task_id[1:], completions[1:], prefill)
        rewards_s = time.perf_counter() - generated_s
        for result in results:
            self._breaker.record(result)
        self._breaker.check()
        texts = [completion_text(completion) for completion in completions]
        groups = self._record(step, task_id, texts, completion_ids, results)
        self.progress.activity(f"step {step}: training")
        self._batch = _ScoredBatch(
            step=step,
            groups=groups,
            num_tokens=sum(len(ids) for ids in completion_ids),
            rewards_s=rewards_s,
        )
        return trl_rewards(results)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Start the run's clock."""
        self._metrics = self.open_metrics()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Start the step's clock; generation and scoring are inside the step."""
        self.progress.activity(f"step {state.global_step + 1}: generating")
        self._begun_s = time.perf_counter()
        self._took_s = {}
        self._rate = self._rate or StepRate()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Stop the step's clock."""
        self._ended_s = time.perf_counter()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float | None] | None = None,
        **unused: object,
    ) -> None:
        """Account for the step; the summary that TRL logs at the end of training is left out."""
        if logs is None or "loss" not in logs or self._batch is None:
            return
        batch, self._batch = self._batch, None
        assert batch.step == state.global_step, f"scored step {batch.step}, trained {state.global_step}"
        self._account(batch, logs)

    def _record(
        self,
        step: int,
        task_ids: Sequence[str],
        texts: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        results: Sequence[RewardResult],
    ) -> tuple[RolloutGroup, ...]:
        """Enter the groups in the ledger; returns those that have a signal to give, two scores at least."""
        size = self.config.grpo.num_generations
        usable = []
        for first in range(0, len(texts), size):
            members = range(first, first + size)
            task = self._tasks[task_ids[first]]
            assert all(task_ids[i] == task.task_id for i in members), "TRL's batch is not in order of groups"
            draw_id = self.ledger.record_draw(task.task_id, step, step - 1)
            completions = [
                self._completion(i - first, completion_ids[i], texts[i], step - 1) for i in members
            ]
            group = make_group(
                draw_id, task, self.prompt_ids(task), completions, [results[i] for i in members]
            )
            lost = [r.result for r in group.rollouts if r.result.is_infra_error]
            if size - len(lost) >= 2:
                self.ledger.record_group(group)
                usable.append(group)
            else:
                self.ledger.fail_group(group, f"scoring failed: {lost[0].detail}")
        if not usable:
            raise StageError(f"step {step}: no group could be scored; the last reason: {lost[0].detail}")
        return tuple(usable)

    def _completion(self, index: int, token_ids: Sequence[int], text: str, policy_version: int) -> Completion:
        is_full = len(token_ids) >= self.config.generation.max_completion_length
        return Completion(
            index=index,
            token_ids=tuple(token_ids),
            # TRL has none yet, or keeps those of its vLLM to itself.
            logprobs=(math.nan,) * len(token_ids),
            text=text,
            # TRL's vLLM ends some at a stop string.
            finish_reason="length" if is_full and token_ids[-1] not in self.end_ids else "stop",
            min_policy_version=policy_version,
            max_policy_version=policy_version,
            num_cached_tokens=None,
        )

    def _account(self, batch: _ScoredBatch, logs: Mapping[str, float | None]) -> None:
        trained = make_batch(batch.step, batch.groups, self.config.grpo)
        step_s = self._ended_s - self._begun_s
        # TRL's vLLM takes new weights where it begins to generate.
        update_s = self._took_s.get("weights", 0.0)
        generation_s = self._took_s["generation"] - update_s
        train_s = step_s - generation_s - update_s - batch.rewards_s
        metrics = {
            **batch_metrics(batch.step, batch.groups, self.config),
            **rename_metrics(logs),
            "generation/seconds": generation_s,
            "generation/tokens": float(batch.num_tokens),
            "generation/tokens_per_s": batch.num_tokens / generation_s,
            "rewards/seconds": batch.rewards_s,
            "rewards/seconds_mean": batch.rewards_s / self.config.completions_per_step,
            "rewards/cache_hit_rate": 0.0,
            "weights/update_s": update_s,
            "train/seconds": train_s,
            "train/tokens": float(trained.num_tokens),
            "train/tokens_per_s": trained.num_tokens / train_s,
            "step/seconds": step_s,
            "step/samples_per_s": len(scored(batch.groups)) / step_s,
            **(self._rate.step() if self._rate else {}),
        }
        result = StepResult(
            step=batch.step,
            metrics=metrics,
            seconds=train_s,
            num_tokens=trained.num_tokens,
        )
        self.ledger.commit_step(result, [group.draw_id for group in batch.groups], {})
        output = self.config.output
        if output.text_steps is not None and batch.step % output.save_steps == 0:
            self.ledger.forget_texts(batch.step, output.text_steps)
        if batch.step % self.config.output.logging_steps == 0:
            assert self._metrics is not None, "a step was trained before training began"
            self._metrics.log(batch.step, metrics)
            self.tracking.log(batch.step, metrics)
        self.progress.step(batch.step, metrics)
        log_samples(self.samples, batch.step, batch.groups[0])


def rename_metrics(logs: Mapping[str, float | None]) -> dict[str, float]:
    """TRL's metrics of the training step under our names; all others are left out."""
    found = {ours: logs.get(theirs) for theirs, ours in _METRIC_NAMES.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


@dataclass(eq=False, kw_only=True)
class StepCheckpoints(TrainerCallback):
    """Saves ``model`` to ``checkpoint(step)``, and keeps the newest ``limit`` of what it saved.

    ``end_ids`` are the model's own end tokens; in training it may have others. The last step is left out: it
    is saved when training is over.
    """

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    end_ids: int | list[int] | None
    checkpoint: Callable[[int], Path]
    save_steps: int
    limit: int
    _saved: list[Path] = field(default_factory=list)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Save if it is due."""
        if state.global_step % self.save_steps or state.global_step >= state.max_steps:
            return
        folder = self.checkpoint(state.global_step)
        settings = self.model.generation_config
        stop_ids, settings.eos_token_id = settings.eos_token_id, self.end_ids
        with written_whole(folder) as written:
            try:
                self.model.save_pretrained(str(written))
            finally:
                settings.eos_token_id = stop_ids
            self.tokenizer.save_pretrained(str(written))
            let_others_read(written)
        self._saved.append(folder)
        while len(self._saved) > self.limit:
            remove_unless_kept(self._saved.pop(0))
