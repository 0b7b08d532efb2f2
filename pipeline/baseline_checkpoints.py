"""The baseline's models on the way, every ``output.save_steps`` steps: weights only, nothing to resume from.

They are what a benchmark measures over time. Called by pipeline.baseline.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class StepCheckpoints(TrainerCallback):
    """Saves ``model`` to ``checkpoint(step)``, and keeps the newest ``limit`` of what it saved.

    ``end_ids`` are the model's own end tokens; in training it may have others. The last step is left out: it
    is saved when training is over.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        end_ids: int | list[int] | None,
        checkpoint: Callable[[int], Path],
        save_steps: int,
        limit: int,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._checkpoint = checkpoint
        self._save_steps = save_steps
        self._limit = limit
        self._saved: list[Path] = []

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        """Save if it is due."""
        if state.global_step % self._save_steps or state.global_step >= state.max_steps:
            return
        folder = self._checkpoint(state.global_step)
        settings = self._model.generation_config
        stop_ids, settings.eos_token_id = settings.eos_token_id, self._end_ids
        try:
            self._model.save_pretrained(str(folder))
        finally:
            settings.eos_token_id = stop_ids
        self._tokenizer.save_pretrained(str(folder))
        self._saved.append(folder)
        while len(self._saved) > self._limit:
            shutil.rmtree(self._saved.pop(0), ignore_errors=True)
