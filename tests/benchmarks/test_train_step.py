"""The training-step benchmark runs, compares gradients that can differ, and explains where time goes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.recording import (
    describe_batch,
    load_recording,
    write_recording,
)
from benchmarks.report import RESULTS
from benchmarks.train_step import memory
from benchmarks.train_step.__main__ import (
    _DEFAULT_ROWS,
    TOLERANCE,
    has_right_gradients,
    main,
    make_job,
    measure,
    parse,
    profile_table,
    table,
)
from benchmarks.train_step.inputs import job_config, make_inputs
from benchmarks.train_step.job import (
    TECHNIQUES,
    VARIANTS,
    BatchSpec,
    MemoryCase,
    StepJob,
    Variant,
    precision_of,
    run_worker,
)
from benchmarks.train_step.profile import _ATTENTION_OPS, GROUPS, group_seconds
from benchmarks.train_step.worker import (
    check_gradients,
    distance,
    gradients_of,
    memory_terms,
    norm_of,
    run_job,
)
from configs.schema import ModelConfig
from curriculum.audit.new_tests import as_record
from curriculum.jsonl import load_jsonl
from pipeline.baseline import training
from pipeline.host.device import for_device
from pipeline.planning.memory_estimate import find_shape
from pipeline.training import attention, varlen_attention
from pipeline.training.memory import TRAINER_LIBRARIES, limits, trainer_parts
from tests.pipeline.tiny_model import VOCABULARY, save_model

BATCH = BatchSpec(
    name="random", groups=2, generations=4, prompt_tokens=10, completion_tokens=12, flat_groups=1
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> StepJob:
    folder = save_model(tmp_path_factory.mktemp("model"))
    return StepJob(
        task="time",
        variants=("all",),
        model=str(folder),
        batch=BATCH,
        num_steps=1,
        cores=(0,),
        device="cpu",
        trl_micro_batch=4,
    )


def test_rows_that_cannot_run_here_are_left_out_and_say_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = parse(["--rows", "all", "all-liger", "all-8bit", "all-offloaded"])
    assert make_job(given).variants == ("all",)
    assert list(given.left_out) == ["all-liger", "all-8bit", "all-offloaded"]
    assert "all-liger is left out: training.use_liger_kernel: true" in capsys.readouterr().err
    assert "needs a CUDA GPU" in given.left_out["all-offloaded"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    given = parse(["--device", "cuda", "--rows", "all-liger", "all-8bit", "all-offloaded"])
    assert given.rows == ["all-offloaded"]
    assert "pip install liger-kernel" in given.left_out["all-liger"]
    assert "pip install bitsandbytes" in given.left_out["all-8bit"]
    with pytest.raises(SystemExit):
        parse(["--rows", "all-liger"])
    assert make_job(parse([])).variants == _DEFAULT_ROWS


@pytest.fixture(autouse=True)
def _bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows there are by default is not this machine's."""
    is_there(monkeypatch, True)


def is_there(monkeypatch: pytest.MonkeyPatch, has_bf16: bool) -> None:
    for module in ("__main__", "job"):
        monkeypatch.setattr(f"benchmarks.train_step.{module}.has_bf16", lambda device: has_bf16)


def test_without_bf16_no_row_computes_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_there(monkeypatch, False)
    rows = make_job(parse([])).variants
    assert {"trl-fp32", "plain", "only-packing", "no-bf16"} <= set(rows)
    assert not any(VARIANTS[name].is_bf16 for name in rows)
    assert make_job(parse(["--profile"])).variants == ("no-bf16",)
    assert "--rows: all is left out: there are no instructions for bf16" in capsys.readouterr().err


@pytest.mark.parametrize("has_bf16", [True, False])
def test_the_limit_is_that_of_the_precision_in_which_a_run_computes(
    has_bf16: bool, job: StepJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.train_step.profile.has_bf16", lambda device: has_bf16)
    limit = run_job(replace(job, task="limit"))
    assert precision_of(limit) == limit["dtype"] == ("bf16" if has_bf16 else "fp32")
    assert limit["gflops"] > 0


def test_a_recording_is_a_step_of_real_groups() -> None:
    recording = load_recording("short")
    assert len(recording.groups) == 8
    assert len(recording.batch.samples) == 64
    # The defaults, but for uniform draws.
    assert recording.config.model_dump(exclude_unset=True) == {
        "training": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 8},
        "acceleration": {"curriculum": {"enabled": False}},
    }
    longest = recording.config.generation.max_completion_length
    for group in recording.groups:
        assert len({rollout.prompt_ids for rollout in group.rollouts}) == 1
        for rollout in group.rollouts:
            completion = rollout.completion
            assert 0 < len(completion.token_ids) == len(completion.logprobs) <= longest
            assert all(value <= 0 for value in completion.logprobs)
            assert 0 <= rollout.result.reward <= 1
    assert "64 completions" in describe_batch("short", recording.batch)["description"]


def test_a_recording_survives_its_file_and_says_when_its_task_is_gone(tmp_path: Path) -> None:
    recording = load_recording("short")
    path = tmp_path / "copy.json.gz"
    settings = recording.config.model_dump(mode="json", exclude_unset=True)
    write_recording(path, settings, recording.groups, {})
    copy = load_recording(str(path))
    assert copy.groups == recording.groups and copy.batch == recording.batch
    gone = replace(recording.groups[0], task=replace(recording.groups[0].task, task_id="ladder/gone"))
    write_recording(path, settings, (gone,), {})
    with pytest.raises(ValueError, match=r"no task 'ladder/gone'.*benchmarks.recording"):
        load_recording(str(path))
    for content in (b"", b"no gzip", gzip.compress(b"no json"), gzip.compress(b"[]"), gzip.compress(b"{}")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"copy.json.gz: no recording"):
            load_recording(str(path))


def test_a_step_of_another_data_set_is_trained_on_as_it_was_recorded(job: StepJob, tmp_path: Path) -> None:
    recording = load_recording("short")
    tasks, path = tmp_path / "mine.jsonl", tmp_path / "mine.json.gz"
    records = [
        as_record(replace(group.task, task_id=f"mine/{i}")) for i, group in enumerate(recording.groups)
    ]
    tasks.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    groups = [
        replace(group, task=task) for group, task in zip(recording.groups, load_jsonl(tasks), strict=True)
    ]
    settings = {
        "model": {"name": "smollm2-135m-instruct"},
        "dataset": {"name": str(tasks)},
        "training": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3},
        "grpo": {"epsilon_high": 0.28, "beta": 0.1},
    }
    write_recording(path, settings, groups[:3], {})
    mine = replace(job, batch=BatchSpec(name=str(path)), model="smollm2-135m-instruct", trl_micro_batch=12)
    inputs = make_inputs(mine)
    assert inputs.batch.samples == recording.batch.samples[:24]
    for name in ("plain", "trl-bf16"):
        config = job_config(mine, VARIANTS[name], inputs)
        assert config.completions_per_step == 24 and config.grpo.epsilon_high == 0.28
        assert config.grpo.beta == 0.0, "no recording has the reference's log-probabilities"
    with pytest.raises(ValueError, match="--trl-micro-batch: value 7: a divisor of 24"):
        job_config(replace(mine, trl_micro_batch=7), VARIANTS["trl-bf16"], inputs)
    with pytest.raises(ValueError, match="or a recording of this model"):
        make_inputs(replace(mine, model=job.model))
    with pytest.raises(SystemExit):
        parse(["--batch", str(tmp_path / "none.json.gz")])


def test_each_technique_has_a_row_alone_and_one_left_out() -> None:
    for key in TECHNIQUES:
        assert VARIANTS[f"only-{key}"].settings != VARIANTS["plain"].settings
        assert VARIANTS[f"no-{key}"].settings != VARIANTS["all"].settings
    acceleration = VARIANTS["only-packing"].settings["acceleration"]
    assert acceleration["token_packing"] == {"enabled": True}
    assert not acceleration["shared_prompt"] and not VARIANTS["only-packing"].is_bf16
    assert VARIANTS["no-packing"].settings["acceleration"]["token_packing"] == {"enabled": False}
    # The row "all" is what a run does that sets nothing.
    defaults = load_recording("short").config
    found = VARIANTS["all"].settings["acceleration"]
    assert VARIANTS["all"].is_bf16 and defaults.training.bf16 is None
    assert found["token_packing"]["enabled"] == defaults.acceleration.token_packing.enabled
    assert found["shared_prompt"] == defaults.acceleration.shared_prompt
    assert found["shared_prefix"] == defaults.acceleration.shared_prefix
    assert found["skip_zero_advantages"] == defaults.acceleration.skip_zero_advantages


def test_a_step_takes_the_whole_batch_in_every_variant(job: StepJob) -> None:
    inputs = make_inputs(job)
    for variant in VARIANTS.values():
        config = job_config(job, variant, inputs)
        assert config.completions_per_step == len(inputs.batch.samples) == 8


@pytest.mark.parametrize("name", ["trl-autocast", "trl-bf16", "all"])
def test_the_steps_of_a_variant_are_timed_without_the_first(job: StepJob, name: str) -> None:
    found = run_job(replace(job, variants=(name,), num_steps=2))
    assert len(found["step_s"]) == 2
    assert all(seconds > 0 for seconds in found["step_s"])
    assert found["peak_mb"] > 100


def test_every_gradient_is_compared_and_all_are_plains(job: StepJob) -> None:
    names = ("trl-autocast", *(f"only-{key}" for key in TECHNIQUES), "all", "all-checkpointed")
    found = run_job(replace(job, task="check", variants=names))
    assert found["errors"].keys() == set(names)
    assert found["norm"] > 1e-3
    assert has_right_gradients({"gradients": found})
    assert found["errors"]["only-packing"]["relative"] > 0
    assert found["errors"]["all"]["rounded"] > 100 * TOLERANCE


def test_a_variant_with_another_gradient_is_found(job: StepJob) -> None:
    """bnpo's objective depends on the size of its micro-batches: it stands for a technique that is wrong."""
    inputs = make_inputs(job)
    inputs = replace(inputs, base={**inputs.base, "grpo": {"num_generations": 4, "loss_type": "bnpo"}})
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": False}
    plain = VARIANTS["plain"]
    wrong = replace(plain, name="wrong", settings={**plain.settings, "training": sizes})
    found = check_gradients(job, [VARIANTS["no-bf16"], wrong], inputs)
    assert found["errors"]["no-bf16"]["relative"] <= TOLERANCE < found["errors"]["wrong"]["relative"]
    assert not has_right_gradients({"gradients": found})


@pytest.mark.slow
def test_trls_gradient_of_the_real_model_is_off_by_its_log_softmax_alone(
    job: StepJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL subtracts ``torch.logsumexp`` from the logits; with ``log_softmax`` its gradient is plain's."""
    real = replace(job, model="smollm2-135m-instruct", batch=BatchSpec(), trl_micro_batch=2)
    recorded = make_inputs(real)
    group = recorded.batch.samples[:2]
    inputs = replace(
        recorded,
        batch=replace(recorded.batch, samples=group),
        base={
            **recorded.base,
            "training": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1},
            "grpo": {**recorded.base.get("grpo", {}), "num_generations": 2},
        },
    )

    plain = gradients_of(real, VARIANTS["plain"], inputs)

    def relative() -> float:
        return distance(gradients_of(real, VARIANTS["trl-fp32"], inputs), plain) / norm_of(plain)

    def by_log_softmax(logits: Tensor, index: Tensor, **unused: object) -> tuple[Tensor, Tensor]:
        logprobs = logits.log_softmax(-1).gather(-1, index[..., None])[..., 0]
        return logprobs, torch.zeros_like(logprobs)

    as_it_comes = relative()
    monkeypatch.setattr(training, "selective_log_softmax_and_entropy", by_log_softmax)
    assert relative() < 1e-5 < 2e-5 < as_it_comes


def test_the_benchmark_runs_in_processes_and_has_a_row_for_each_variant(job: StepJob) -> None:
    job = replace(job, variants=("all",))
    result = measure(job, num_repeats=1, num_rounds=1, timeout_s=240, is_checked=False)
    row = result["variants"]["all"]
    assert row["tokens_per_s"] == pytest.approx(result["batch"]["num_tokens"] / row["median_s"])
    assert row["ratio"] is None
    assert result["batch"]["num_groups_without_signal"] == 1
    assert result["threads"] == 1 and result["cores"] == [0]
    assert "| all | " in table(result) and "not compared" in table(result)
    json.dumps(result)
    with pytest.raises(RuntimeError, match=r"time all: the worker failed(.|\n)*--model: value"):
        run_worker(replace(job, batch=BatchSpec(name="short")), 240)


def test_a_worker_that_fails_costs_its_own_figures_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    flops = {"layers": 3e9, "head": 6e9, "attention": 1e9}
    limit = {"gflops": 10.0, "sheet_gflops": None, "needed_flops": flops, "dtype": "bf16"}
    batch = {"num_tokens": 100, "num_samples": 4, "description": "some"}

    def work(job: StepJob, timeout_s: float) -> dict[str, Any]:
        done.append(job.name)
        if job.task == "check" or (job.variants == ("plain",) and done.count(job.name) == 2):
            raise RuntimeError(f"{job.name}: the worker failed:\nno {job.task}")
        if job.task == "limit":
            return {**limit, "batch": batch}
        return {"step_s": [2.0], "peak_mb": 1.0}

    monkeypatch.setattr("benchmarks.train_step.__main__.run_worker", work)
    output = tmp_path / "result.json"
    words = ["--rows", "plain", "all", "--repeats", "3", "--rounds", "3", "--threads", "1"]
    assert main([*words, "--output", str(output)]) == 1
    found = json.loads(output.read_text())
    assert {name: row["step_s"] for name, row in found["variants"].items()} == {
        "plain": [2.0],
        "all": [2.0, 2.0, 2.0],
    }
    assert found["gradients"] is None and found["failed"]["gradients"].endswith("no check")
    assert done.count("time plain") == 2
    said = capsys.readouterr()
    assert "plain failed: no time" in said.out and "gradients failed: no check" in said.out
    assert "error: plain: time plain: the worker failed:" in said.err
    assert "failed" not in table({**found, "failed": {}})

    def nothing(job: StepJob, timeout_s: float) -> dict[str, Any]:
        raise RuntimeError("no such model")

    monkeypatch.setattr("benchmarks.train_step.__main__.run_worker", nothing)
    assert main(words) == main(["--profile", "--threads", "1"]) == 1
    assert "error: no such model" in capsys.readouterr().err


def test_the_gradient_that_others_are_compared_with_is_computed_once(
    job: StepJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []

    def gradients(job: StepJob, variant: Variant, inputs: object) -> dict[str, Tensor]:
        computed.append(variant.name)
        return {"weight": torch.ones(1)}

    monkeypatch.setattr("benchmarks.train_step.worker.gradients_of", gradients)
    inputs: Any = None
    found = check_gradients(job, [VARIANTS["plain"], VARIANTS["only-skip"]], inputs)
    assert computed == ["plain", "only-skip"]
    assert found["errors"]["plain"]["relative"] == 0.0


def test_memory_of_other_circumstances_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {"estimate": {"activations": 1e9}, "peak": 1e9, "checkpoints": False, "bf16": True}
    here: dict[str, Any] = {"hardware": {"cpu": "a CPU", "has_bf16": True}, "versions": {"torch": "2.13.0"}}
    measured: list[str] = []

    def work(case_: MemoryCase, timeout_s: float) -> dict[str, Any]:
        measured.append(case_.name)
        return case

    monkeypatch.setattr("benchmarks.train_step.memory.run_worker", work)
    monkeypatch.setattr("benchmarks.train_step.memory.circumstances", lambda *packages: here)
    output = tmp_path / "result.json"
    words = ["--models", "m", "--rows", "64", "--threads", "1", "--output", str(output)]
    assert memory.main(words) == 0
    assert measured == ["m, all weights, 64", "m, LoRA, 64"]
    result = json.loads(output.read_text())
    # One of an earlier version tells the precision by its cases.
    earlier = {**result, "hardware": {"cpu": "a CPU"}}
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"hardware": {"cpu": "a 486"}}, "cpu was 'a 486', is 'a CPU'"),
        ({"versions": {"torch": "2.12.0"}}, "torch was '2.12.0', is '2.13.0'"),
        ({"cores": [0, 1]}, "cores was 2, is 1"),
        ({"cases": {"m, LoRA, 64": {**case, "bf16": False}}}, "bf16 was False, is True"),
    )
    for change, complaint in changes:
        output.write_text(json.dumps({**earlier, **change}))
        assert memory.main(words) == 2
        assert f"({complaint}); give another --output" in capsys.readouterr().err
        assert json.loads(output.read_text()) == {**earlier, **change}
    output.write_text("[]")
    assert memory.main(words) == 2
    output.write_text(json.dumps(earlier))
    assert memory.main(words) == 0 and len(measured) == 2


def test_the_profile_accounts_for_all_of_the_step(job: StepJob) -> None:
    found = run_job(replace(job, task="profile", variants=("all",)))
    assert tuple(found["groups"]) == GROUPS
    assert sum(group["share"] for group in found["groups"].values()) == pytest.approx(1.0)
    for name in GROUPS:
        assert found["groups"][name]["share"] > 0, name
    limit = {"gflops": 10.0, "needed_flops": {"layers": 3e9, "head": 6e9, "attention": 1e9}}
    place = {"device": "cpu", "threads": 1, "hardware": {"cpu": "some"}, "model": "tiny", "variant": "all"}
    text = profile_table({"profile": found, "limit": limit, "batch": {"description": "some"}, **place})
    assert all(f"| {name} | " in text for name in GROUPS)
    assert "It needs 10 GFLOP;" in text
    # Frozen weights have no gradient.
    text = profile_table(
        {"profile": found, "limit": limit, "batch": {"description": "some"}, **place, "variant": "all-lora"}
    )
    assert "It needs 7 GFLOP;" in text


def test_attention_of_ours_is_known_by_the_names_of_its_functions() -> None:
    classes = (attention._CpuAttention, varlen_attention._VarlenAttention)
    assert {one.__name__ for one in classes} <= set(_ATTENTION_OPS)


def test_operations_of_the_backward_count_for_the_module_of_their_forward() -> None:
    norm = _event("module: LlamaRMSNorm")
    forward = _event("aten::pow", parent=norm, sequence=7, seconds=1.0)
    engine = _event("autograd::engine::evaluate_function: PowBackward0")
    node = _event("PowBackward0", parent=engine, sequence=7)
    backward = _event("aten::mul", parent=node, seconds=2.0)
    routing = _event("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
    added = _event("aten::add_", parent=routing, seconds=4.0)
    head = _event("aten::mm", seconds=8.0, shapes=[[6, 24], [24, VOCABULARY]])
    softmax = _event("aten::_softmax", seconds=16.0, shapes=[[6, VOCABULARY]])
    layer = _event("aten::mm", parent=node, seconds=32.0, shapes=[[6, 24], [24, 40]])
    events = [norm, forward, engine, node, backward, routing, added, head, softmax, layer]
    seconds = {name: value for name, value in group_seconds(events, VOCABULARY).items() if value}
    assert seconds == {
        "norms": 3.0,
        "routing gradients to fp32": 4.0,
        "matrix products of the head": 8.0,
        "log-probabilities": 16.0,
        "matrix products of the layers, backward": 32.0,
    }


def test_the_command_line_makes_the_job_that_a_worker_reads() -> None:
    given = parse(["--device", "cuda", "--model", "some/folder", "--batch", "random", "--threads", "1"])
    job = make_job(given)
    assert job.device == "cuda" and job.batch.completion_tokens == 1024 and len(job.cores) == 1
    assert make_job(parse(["--profile"])).variants == ("all",)
    assert {"trl-autocast", "plain", "all"} <= set(make_job(parse([])).variants)


def _event(
    name: str, *, parent: Any = None, sequence: int = -1, seconds: float = 0.0, shapes: Any = ()
) -> Any:
    return SimpleNamespace(
        name=name,
        cpu_parent=parent,
        sequence_nr=sequence,
        self_cpu_time_total=1e6 * seconds,
        input_shapes=shapes,
    )


def test_the_measured_peaks_are_near_the_estimates_and_hardly_above_them() -> None:
    """docs/memory.md's table: within a tenth, never below by more than a twentieth."""
    cases = json.loads((RESULTS / "memory_cpu.json").read_text(encoding="utf-8"))["cases"]
    ratios = {name: sum(case["estimate"].values()) / case["peak"] for name, case in cases.items()}
    assert len(ratios) == 16
    assert {name: ratio for name, ratio in ratios.items() if not 0.95 <= ratio <= 1.1} == {}


@pytest.mark.parametrize("model", memory._MODELS)
def test_the_recorded_estimates_are_those_that_the_code_makes(model: str) -> None:
    """Or the table's ratios say nothing of the estimate that a run goes by."""
    shape = find_shape(ModelConfig(name=model))
    assert shape is not None
    cases = json.loads((RESULTS / "memory_cpu.json").read_text(encoding="utf-8"))["cases"]
    own = {name: case for name, case in cases.items() if name.startswith(f"{model}, ")}
    assert len(own) == 8
    for name, case in own.items():
        _, trained, rows = name.split(", ")
        num_tokens = int(rows)
        _, config = memory_terms(
            MemoryCase(model=model, is_lora=trained == "LoRA", num_tokens=num_tokens, cores=(0,))
        )
        precision = config.training.model_copy(update={"bf16": case["bf16"]})
        config = for_device(config.model_copy(update={"training": precision}), "cpu")
        every = limits(config)
        limit = every[len(every) // 2 if case["checkpoints"] else 0]
        parts = trainer_parts(config, shape, "cpu", limit, num_tokens=num_tokens)
        assert case["estimate"] == pytest.approx({"libraries": TRAINER_LIBRARIES, **parts}), name
