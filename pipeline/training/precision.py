"""In which precision a step computes: fp32 master weights, and the model that runs forward and backward.

With ``training.bf16`` that model is a bf16 copy, whose gradients are summed in fp32 and which is refreshed
after each update. That is faster than autocast, which casts every weight at every micro-batch, and it is the
generator's arithmetic as well: its residual stream is bf16 too. The optimiser over the master weights and its
learning rate over the steps are here as well. Does not know the loss.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from configs.training_schema import TrainingConfig


class MasterWeights:
    """The trained weights of ``model`` in fp32, their gradients, and ``compute_model``, the model that runs.

    ``trained`` are the parameters of ``model`` that need a gradient, in its order. A frozen parameter has no
    copy in fp32, no gradient and no optimiser state: ``model`` and ``compute_model`` share it.
    """

    def __init__(self, model: PreTrainedModel, *, bf16: bool) -> None:
        self.compute_model = _bf16_copy(model) if bf16 else model
        pairs = zip(model.parameters(), self.compute_model.parameters(), strict=True)
        self._pairs = [(master, computed) for master, computed in pairs if master.requires_grad]
        if not self._pairs:
            raise ValueError("model: no parameter needs a gradient; there is nothing to train")
        self.trained = [master for master, _ in self._pairs]
        self._sums: dict[nn.Parameter, _GradientSum] = {}
        if bf16:
            self._sums = {computed: _GradientSum(master) for master, computed in self._pairs}
            for computed, gradient in self._sums.items():
                computed.register_post_accumulate_grad_hook(gradient.take)  # type: ignore[no-untyped-call]

    @property
    def has_sums(self) -> bool:
        """Whether the memory of all gradients is taken from the beginning."""
        return bool(self._sums)

    def gradient_of(self, computed: nn.Parameter) -> Tensor:
        """The fp32 gradient to which that of ``computed`` belongs, to be added to in place."""
        if computed in self._sums:
            return self._sums[computed].tensor()
        if computed.grad is None:
            computed.grad = torch.zeros_like(computed)
        return computed.grad

    def clear_gradients(self) -> None:
        """Forget all gradients; the next backward begins the sums, so nothing is zeroed before it."""
        for master, computed in self._pairs:
            master.grad = computed.grad = None

    def complete_gradients(self) -> None:
        """Give a gradient of zero to what no backward reached: the optimiser's momentum goes on."""
        for master, computed in self._pairs:
            if master.grad is None and (kept := self._sums.get(computed)) is not None:
                kept.tensor()  # In the memory that is kept for it, not in another copy of the weights.
        for master in self.trained:
            if master.grad is None:
                master.grad = torch.zeros_like(master)

    @torch.no_grad()
    def clip_gradients(self, max_norm: float, *, scale: float = 1.0) -> Tensor:
        """Multiply the gradient by ``scale`` and cut it down to ``max_norm``, in one pass.

        Returns the norm of the scaled gradient before it was cut, a scalar on the device.
        """
        gradients = [master.grad for master in self.trained if master.grad is not None]
        norm = nn.utils.get_total_norm(gradients) * scale
        # As in torch's clip_grad_norm_.
        torch._foreach_mul_(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0) * scale)
        return norm

    def gradient_versions(self) -> tuple[int, ...]:
        """What is another tuple after anything was added to a gradient; it waits for no device."""
        return tuple(-1 if master.grad is None else master.grad._version for master in self.trained)

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the masters into the copy, after they have changed."""
        copies = [(computed, master) for master, computed in self._pairs if computed is not master]
        if copies:
            torch._foreach_copy_([computed for computed, _ in copies], [master for _, master in copies])


def make_optimizer(trained: list[nn.Parameter], training: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW (arXiv:1711.05101) over the masters: one kernel for all of them on a GPU, one pass on a CPU.

    With ``adamw_8bit`` it is that of bitsandbytes, whose moments are in 8 bits (arXiv:2110.02861).
    """
    betas = (training.adam_beta1, training.adam_beta2)
    lr, eps, weight_decay = training.learning_rate, training.adam_epsilon, training.weight_decay
    if training.optim == "adamw_8bit":
        # Imported here: it need not be installed (pipeline.host.device).
        from bitsandbytes.optim import AdamW8bit  # type: ignore[import-not-found]

        eight_bit: torch.optim.Optimizer = AdamW8bit(
            trained, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay
        )
        return eight_bit
    return torch.optim.AdamW(trained, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)


def make_moments(optimizer: torch.optim.Optimizer, *, has_sums: bool) -> None:
    """Have a new ``optimizer`` take the memory of its moments now, and beside it that of a step's gradients.

    So a card that is too small for them says so before anything is generated. ``has_sums``: the memory of the
    gradients has been taken already, by the weights (MasterWeights).
    """
    groups = optimizer.param_groups
    rates = [group["lr"] for group in groups]
    trained = [parameter for group in groups for parameter in group["params"]]
    for group in groups:
        group["lr"] = 0.0
    # Beside their sums gradients of all would be another copy of the weights, which no step has.
    for together in [[parameter] for parameter in trained] if has_sums else [trained]:
        for parameter in together:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        for parameter in together:
            parameter.grad = None
            # A count, as a tensor or a number: no step has been made.
            optimizer.state[parameter]["step"] *= 0
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


def set_gpu_arithmetic(*, tf32: bool) -> None:
    """For the whole process: TF32 matrix products where fp32 is asked for, and cuDNN tries its kernels.

    TF32 rounds the factors to 10 bits of mantissa and adds in fp32; it acts on what is not bf16.
    """
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def _bf16_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with bf16 parameters; frozen ones are rounded in place and shared.

    Buffers stay as they are, as the generator has them: the frequencies of rotary embeddings, rounded to
    bf16, would turn late positions by another angle.
    """
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(torch.bfloat16)
    computed = copy.deepcopy(model, {id(parameter): parameter for parameter in frozen})
    for parameter in computed.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)
    return computed


class _GradientSum:
    """The fp32 gradient of one master; None in ``master.grad`` stands for zero."""

    def __init__(self, master: nn.Parameter) -> None:
        self._master = master
        # Kept from step to step: fresh memory of this size costs more than the sum.
        self._memory = torch.empty_like(master, requires_grad=False)

    def take(self, computed: Tensor) -> None:
        """Add the gradient of ``computed``, and drop it."""
        assert computed.grad is not None
        if self._master.grad is None:
            self._master.grad = self._memory.copy_(computed.grad)
        else:
            self._master.grad.add_(computed.grad)
        computed.grad = None

    def tensor(self) -> Tensor:
        """The gradient, to be added to in place."""
        if self._master.grad is None:
            self._master.grad = self._memory.zero_()
        return self._master.grad


def learning_rate_factor(step: int, training: TrainingConfig) -> float:
    """The share of the peak learning rate in optimiser step ``step`` (from 0).

    Warm-up rises linearly and does not waste the first step on a rate of zero; linear and cosine then
    fall towards zero at ``max_steps``.
    """
    if step < training.warmup_steps:
        return (step + 1) / (training.warmup_steps + 1)
    if training.lr_scheduler_type == "constant":
        return 1.0
    left = max(training.max_steps - training.warmup_steps, 1)
    progress = min((step - training.warmup_steps) / left, 1.0)
    if training.lr_scheduler_type == "linear":
        return 1.0 - progress
    return 0.5 * (1.0 + math.cos(math.pi * progress))
