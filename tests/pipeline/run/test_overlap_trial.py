from __future__ import annotations

from pathlib import Path

import pytest

from configs.conditions import why_no_overlap_trial
from configs.schema import Config
from pipeline.host.shares import check_residence, check_sleep, cpu_threads, gpu_shares, is_shared
from pipeline.record.metrics import read_metrics
from pipeline.run import job, overlap_trial
from pipeline.run.overlap_trial import OverlapTrial, Verdict
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, FakeRun, make_config


def config_of(**sections: object) -> Config:
    return Config.model_validate({"training": {"max_steps": 40}, **sections})


def decide(overlap_s: list[float], alternate_s: list[float]) -> tuple[Verdict, int]:
    """The verdict on steps of these seconds in each order, and the number of steps that it took."""
    trial = OverlapTrial(num_settling=1, num_measured=3)
    overlapped, alternated = iter(overlap_s), iter(alternate_s)
    for number in range(1, 50):
        step_s = next(overlapped) if trial.overlaps else next(alternated)
        verdict = trial.record(step_s, 1000)
        if verdict is not None:
            assert trial.overlaps is verdict.overlaps
            assert trial.record(1e9, 1000) is None, "it is decided for good"
            return verdict, number
    raise AssertionError("never decided")


def test_the_faster_order_is_kept_and_the_steps_after_a_change_do_not_count() -> None:
    verdict, num_steps = decide([99.0, 10.0, 11.0, 30.0], [99.0, 8.0, 9.0, 8.5])
    assert (verdict.overlaps, verdict.overlap_s, verdict.alternate_s) == (False, 11.0, 8.5)
    assert num_steps == 8
    assert "in turn: 11.00 s for 1,000 tokens" in str(verdict)
    verdict, num_steps = decide([0.0, 10.0, 10.0, 10.0, 99.0, 10.5, 10.5, 10.5], [0.0, 11.0, 11.0, 11.0])
    assert (verdict.overlaps, verdict.overlap_s, verdict.alternate_s) == (True, 10.5, 11.0)
    assert num_steps == 12


def test_overlap_must_be_faster_after_the_other_order_as_well() -> None:
    """Completions became shorter: a token costs more than in the first look, in either order."""
    verdict, num_steps = decide([0.0, 10.0, 10.0, 10.0, 0.0, 12.0, 12.0, 12.0], [0.0, 11.0, 11.0, 11.0])
    assert (verdict.overlaps, verdict.overlap_s, verdict.alternate_s) == (False, 12.0, 11.0)
    assert num_steps == 12


def test_an_order_that_is_clearly_slower_is_given_up_after_a_step() -> None:
    verdict, num_steps = decide([0.0, 10.0, 10.0, 10.0, 0.0, 10.0, 10.0, 10.0], [20.0, 14.0])
    assert verdict.overlaps and num_steps == 10


@pytest.mark.parametrize("offset", range(3))
def test_steps_that_are_generated_together_are_measured_together(offset: int) -> None:
    """Of each three steps in turn one waits for the generation of all; it may be any of those measured."""
    trial = OverlapTrial(num_settling=1, num_measured=2, block=3)
    num_in_turn = 0
    for number in range(1, 50):
        seconds = 10.0
        if not trial.overlaps:
            num_in_turn += 1
            seconds = 19.0 if num_in_turn % 3 == offset else 1.0
        verdict = trial.record(seconds, 1000)
        if verdict is not None:
            assert (verdict.overlaps, verdict.overlap_s, verdict.alternate_s) == (False, 10.0, 7.0)
            assert number == 1 + 3 + (3 + 1) + 3
            return
    raise AssertionError("never decided")


@pytest.mark.parametrize(
    ("device", "has_mps", "said"),
    [("cuda", False, True), ("cuda", True, False), ("cpu", False, False)],
)
def test_the_verdict_says_where_two_processes_share_a_gpus_time(
    device: str, has_mps: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap_trial, "has_mps", lambda: has_mps)
    trial = OverlapTrial.of_run(config_of(), device, 1 if device == "cuda" else 0)
    assert trial is not None
    verdict = None
    while verdict is None:
        verdict = trial.record(1.0 if trial.overlaps else 2.0, 1000)
    assert ("time slices (NVIDIA MPS does not run)" in str(verdict)) is said


def test_steps_are_compared_by_their_tokens() -> None:
    trial = OverlapTrial(num_settling=0, num_measured=1)
    assert trial.record(10.0, 1000) is None
    verdict = trial.record(12.0, 2000)
    assert verdict is not None and not verdict.overlaps and verdict.alternate_s == 6.0


@pytest.mark.parametrize(
    ("sections", "device", "num_gpus", "expected"),
    [
        ({}, "cpu", 0, True),
        ({}, "cuda", 1, True),
        ({}, "cuda", 2, False),
        ({"runtime": {"placement": "colocated"}}, "cpu", 0, False),
        ({"runtime": {"placement": "split"}}, "cpu", 0, False),
        ({"training": {"max_steps": 5}}, "cpu", 0, False),
        ({"training": {"max_steps": 19}}, "cpu", 0, False),
        ({"training": {"max_steps": 20}}, "cpu", 0, True),
        ({"acceleration": {"max_staleness": 0, "stream_steps": False}}, "cpu", 0, False),
        ({"acceleration": {"max_staleness": 0}, "grpo": {"loss_type": "bnpo"}}, "cpu", 0, False),
        ({"acceleration": {"max_staleness": 0}}, "cpu", 0, True),
        ({"cluster": {"address": "auto"}, "runtime": {"device": "cuda"}}, "cuda", 1, False),
    ],
)
def test_a_trial_is_for_long_runs_on_shared_hardware_that_have_a_choice(
    sections: dict[str, object], device: str, num_gpus: int, expected: bool
) -> None:
    config = config_of(**sections)
    assert (OverlapTrial.of_run(config, device, num_gpus) is not None) is expected
    # What --explain says is the same, but for the hardware.
    assert (why_no_overlap_trial(config) is None) is (expected or num_gpus == 2)


def test_a_run_that_is_too_short_for_a_trial_says_so() -> None:
    assert "training.max_steps: fewer than 20" in (
        why_no_overlap_trial(config_of(training={"max_steps": 19})) or ""
    )


@pytest.mark.parametrize(
    ("placement", "num_ranks", "engines", "size", "num_gpus", "expected"),
    [
        ("auto", 1, 1, 1, 1, (0.6, 0.4)),
        ("auto", 1, 1, 1, 2, (1.0, 1.0)),
        ("auto", 2, 1, 1, 2, (0.6, 0.4)),
        ("auto", 2, 1, 2, 4, (1.0, 2.0)),
        ("colocated", 1, 1, 1, 2, (0.6, 0.4)),
        ("split", 2, 2, 1, 4, (1.0, 1.0)),
    ],
)
def test_ranks_and_generators_share_gpus_only_where_they_have_to(
    placement: str, num_ranks: int, engines: int, size: int, num_gpus: int, expected: tuple[float, float]
) -> None:
    config = config_of(
        runtime={"placement": placement, "trainer_ranks": num_ranks},
        generation={"num_engines": engines, "tensor_parallel_size": size},
    )
    shares = gpu_shares(config, num_gpus)
    assert (shares.rank, shares.generator) == pytest.approx(expected)
    assert is_shared(config, "cuda", num_gpus) is (expected[0] < 1.0)


@pytest.mark.parametrize(
    ("sections", "num_gpus", "complaint"),
    [
        ({"runtime": {"trainer_ranks": 3}}, 2, "runtime.trainer_ranks: value 3: there are 2 GPUs"),
        ({"runtime": {"placement": "split"}}, 1, "value split: .* need 2 GPUs; there are 1"),
        ({"generation": {"tensor_parallel_size": 2}}, 2, "tensor_parallel_size: .* need 3 GPUs"),
        (
            {"runtime": {"trainer_ranks": 2}, "generation": {"gpu_memory_utilization": 0.5}},
            2,
            "gpu_memory_utilization: value 0.5",
        ),
    ],
)
def test_too_few_gpus_are_refused_with_the_setting_to_change(
    sections: dict[str, object], num_gpus: int, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        gpu_shares(config_of(**sections), num_gpus)


@pytest.mark.parametrize("transport", ["auto", "file"])
def test_a_run_that_wants_more_gpus_than_there_are_ends_before_anything_loads(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "num_gpus", lambda device: 2)
    config = config_of(runtime={"trainer_ranks": 3, "weight_transport": transport})
    faults = job.faults_of(config, "cuda", True, resume=None)
    assert any("runtime.trainer_ranks: value 3: there are 2 GPUs" in fault for fault in faults)
    # What else is asked of the machine has tests of its own.
    assert {check_residence, check_sleep} <= set(job._OF_MACHINE)


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ({}, (8, 8)),
        ({"placement": "split"}, (4, 4)),
        ({"placement": "split", "generator_threads": 6, "trainer_threads": 2}, (6, 2)),
        ({"generator_threads": 100}, (8, 8)),
    ],
)
def test_split_halves_the_cores_and_settings_go_before(
    runtime: dict[str, object], expected: tuple[int, int]
) -> None:
    threads = cpu_threads(config_of(runtime=runtime), 8)
    assert (threads.generators, threads.trainer) == expected


def test_in_turn_nothing_is_generated_while_the_trainer_computes(tmp_path: Path) -> None:
    config = make_config(training={"max_steps": 8}, acceleration={"max_staleness": 1})
    # Steps 3 to 5 run in turn whatever is found.
    seconds = iter([1.0, 9.0])
    decisions: list[Verdict | None] = []
    sizes: list[int] = []

    class Timed(OverlapTrial):
        """The real rule, on times that make the second order look better."""

        def record(self, step_s: float, num_tokens: int) -> Verdict | None:
            sizes.append(num_tokens)
            decisions.append(super().record(next(seconds, 1.0), 1000 if self.overlaps else 100_000))
            return decisions[-1]

    run = FakeRun(tmp_path, config, trial=Timed(num_settling=0, num_measured=1)).train()
    assert any(verdict is not None and not verdict.overlaps for verdict in decisions)
    # Completions of two tokens, written and trained on; the three of a prompt count once a group.
    assert sizes == [GROUPS_PER_STEP * (3 + 2 * 2 * NUM_GENERATIONS)] * 8
    # In turn nothing is written in the second step of a block, two steps' completions in the first.
    written = [row["generation/tokens"] or 0.0 for row in read_metrics(run.folder.path / "metrics.jsonl")]
    assert written[-2:] == [4 * GROUPS_PER_STEP * NUM_GENERATIONS, 0.0]
    in_turn = run.log[run.log.index("trained 4") :]
    is_training = False
    for entry in in_turn:
        is_training = is_training or entry.startswith("train ")
        is_training = is_training and not entry.startswith("weights ")
        assert not (is_training and entry.startswith(("generate", "completion"))), in_turn
    # Two steps are generated at once: the second of them is trained on one step later.
    size = NUM_GENERATIONS * GROUPS_PER_STEP
    assert run.trainer.staleness[-4 * size :] == [0] * size + [1] * size + [0] * size + [1] * size
    # Nobody writes before it, so that its weights are the next that are loaded.
    loaded = [entry for entry in in_turn if entry.startswith("weights ")]
    assert loaded == ["weights 4", "weights 6", "weights 8"]
    (event,) = [row for row in run.rows("SELECT kind, text FROM events") if row[0] == "placement"]
    assert "run in turn" in str(event[1])
