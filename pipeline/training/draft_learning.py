"""The draft model of speculative decoding learns from the run's own completions, so that it keeps up.

    TrainerRank.step ─► DraftLearner.take           TrainerRank.publish ─► DraftLearner.exchange
        (the samples of a step)                         ├─► a thread: one optimiser step, weights to a file
                                                        └─► WeightUpdate.draft_path, with a later version

Whatever the draft model proposes, the tokens that are accepted follow the policy
(pipeline.generation.vllm.samplers), so nothing here can change what is sampled but its speed. That is why
nothing waits for it: the step it learns from is over, and weights that are not ready when a version is
published travel with a later one. It runs on the trainer's device, in the first rank's process, and shares
both with the next step. Its weights are in no checkpoint: a resumed run, or a trainer that was started again,
begins with the draft model as given.

The loss is the cross-entropy of the tokens that the policy sampled: an estimate of the KL divergence of the
draft model from the policy, but for the policy's entropy. All completions count, also those that the policy
learns nothing from. Sources: online speculative decoding (arXiv:2310.07177) distils what was served into a
draft model; FastGRPO's online draft learning (arXiv:2509.21792) does so in every GRPO iteration, with an
EAGLE head and the policy's hidden states, which a model of its own has no use for; TLT (arXiv:2511.16665)
trains its drafter beside the run, on GPUs that are idle. pipeline.generation.vllm.updates loads the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence

from configs.acceleration_schema import DraftLearningConfig
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.models.loading import decoder_of, head_of, load_model
from pipeline.weights.files import write_weights

# Of one forward, padding included; a longer sequence goes alone.
_MICRO_TOKENS = 2048
# Rows of logits that exist at a time: of a vocabulary of 150,000 they take 0.3 GB in fp32.
_LOGITS_ROWS = 512
_MAX_GRAD_NORM = 1.0


class _Text(NamedTuple):
    """Tokens to learn from: those behind the first ``num_prompt``."""

    token_ids: tuple[int, ...]
    num_prompt: int


class LearnedDraft(NamedTuple):
    """What a step of learning left: the mean cross-entropy of a token before it, and the weights' file."""

    loss: float
    path: str


class DraftModel:
    """The draft model in ``folder`` with fp32 weights and AdamW's state; ``bf16`` is for its arithmetic."""

    def __init__(
        self,
        folder: Path | str,
        draft_learning: DraftLearningConfig,
        device: torch.device | str,
        *,
        bf16: bool,
        trust_remote_code: bool = False,
    ) -> None:
        self.model = load_model(folder, device=device, trust_remote_code=trust_remote_code)
        self._max_tokens = draft_learning.max_tokens
        self._device = torch.device(device)
        self._bf16 = bf16
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=draft_learning.rate, weight_decay=0.0, fused=True
        )

    def learn(self, samples: Sequence[TrainingSample]) -> float:
        """One optimiser step on at most ``max_tokens`` tokens of ``samples``.

        Returns the mean cross-entropy of their completion tokens before it, in nats; NaN, and no step, when
        there are none or the gradient is not finite.
        """
        texts = spread_texts(samples, self._max_tokens)
        num_tokens = sum(len(text.token_ids) - text.num_prompt for text in texts)
        if num_tokens == 0:
            return math.nan
        self._optimizer.zero_grad()
        total = 0.0
        for part in _micro_batches(texts):
            total += self._accumulate(part, num_tokens)
        norm = clip_grad_norm_(self.model.parameters(), _MAX_GRAD_NORM)
        if not math.isfinite(float(norm)):
            return math.nan
        self._optimizer.step()
        return total / num_tokens

    def write(self, path: str, policy_version: int, dtype: torch.dtype) -> None:
        """Write the weights in ``dtype`` to ``path``. Raises OSError when they cannot be written."""
        write_weights(self.model.named_parameters(), path, policy_version, dtype)

    def _accumulate(self, part: Sequence[_Text], num_tokens: int) -> float:
        """Add the gradient of the mean over ``num_tokens``; returns the sum of the cross-entropies."""
        # Padding stands on the right, where under a causal mask no real token sees it.
        ids = pad_sequence([torch.tensor(text.token_ids) for text in part], batch_first=True)
        width = ids.shape[1]
        rows, targets = [], []
        for index, text in enumerate(part):
            places = range(text.num_prompt, len(text.token_ids))
            rows += [index * width + place - 1 for place in places]
            targets += list(text.token_ids[text.num_prompt :])
        target_ids = torch.tensor(targets, device=self._device)  # (N,)
        with self._arithmetic():
            output = decoder_of(self.model)(input_ids=ids.to(self._device), use_cache=False)
        hidden = cast(Tensor, output.last_hidden_state).flatten(0, 1)  # (B * T, H)
        hidden = hidden.index_select(0, torch.tensor(rows, device=self._device))  # (N, H)
        states = hidden.detach().requires_grad_()
        total = 0.0
        for start in range(0, len(targets), _LOGITS_ROWS):
            chosen = slice(start, start + _LOGITS_ROWS)
            with self._arithmetic():
                logits: Tensor = head_of(self.model)(states[chosen])
            loss = cross_entropy(logits.float(), target_ids[chosen], reduction="sum")
            (loss / num_tokens).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        hidden.backward(states.grad)  # type: ignore[no-untyped-call]
        return total

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16)


class DraftLearner:
    """``model`` learning beside its caller, one step of learning at a time; its files are in ``dtype``."""

    def __init__(self, model: DraftModel, dtype: torch.dtype) -> None:
        self._model = model
        self._dtype = dtype
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="draft-learning")
        self._samples: list[TrainingSample] = []
        self._learning: Future[LearnedDraft] | None = None
        self._loss = math.nan

    def take(self, batch: TrainBatch) -> None:
        """Keep the samples of ``batch``, a step or a part of it, to be learnt from."""
        if batch.part == 0:
            # What came while the last step of learning took its time is left out.
            self._samples = []
        self._samples += batch.samples

    def exchange(self, directory: str, policy_version: int) -> str | None:
        """The file with weights learnt since the last call, if they are ready; learning goes on from here.

        It never waits. Raises what learning raised: OSError for a file that cannot be written, or torch's
        error for want of memory.
        """
        path = None
        if self._learning is not None:
            if not self._learning.done():
                return None
            self._loss, path = self._learning.result()
            self._learning = None
        if self._samples:
            samples, self._samples = self._samples, []
            file = str(Path(directory) / f"draft-{policy_version:06d}.safetensors")
            self._learning = self._thread.submit(self._learn, samples, file, policy_version)
        return path

    def metrics(self) -> dict[str, float]:
        """Of the last step of learning whose weights were handed out; empty before."""
        return {} if math.isnan(self._loss) else {"draft/loss": self._loss}

    def _learn(self, samples: Sequence[TrainingSample], file: str, policy_version: int) -> LearnedDraft:
        loss = self._model.learn(samples)
        self._model.write(file, policy_version, self._dtype)
        return LearnedDraft(loss, file)


def spread_texts(samples: Sequence[TrainingSample], max_tokens: int) -> list[_Text]:
    """Sequences of ``samples`` with at most ``max_tokens`` tokens in all, the last one cut if need be.

    Where not all fit they are taken at even distances, so that every part of the step has its share.
    """
    num_tokens = sum(len(sample.token_ids) for sample in samples)
    stride = max(1, math.ceil(num_tokens / max_tokens))
    texts, room = [], max_tokens
    for sample in samples[::stride]:
        token_ids = sample.token_ids[:room]
        if len(token_ids) <= sample.num_prompt_tokens:
            continue
        texts.append(_Text(token_ids, sample.num_prompt_tokens))
        room -= len(token_ids)
    return texts


def _micro_batches(texts: Sequence[_Text]) -> Iterator[list[_Text]]:
    """The texts by length, as many at a time as ``_MICRO_TOKENS`` hold with their padding."""
    part: list[_Text] = []
    for text in sorted(texts, key=lambda text: -len(text.token_ids)):
        if part and (len(part) + 1) * len(part[0].token_ids) > _MICRO_TOKENS:
            yield part
            part = []
        part.append(text)
    if part:
        yield part
