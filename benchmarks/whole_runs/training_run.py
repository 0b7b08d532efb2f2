"""One training run of a benchmark: the command, its folder, its speed, and pass rates of its checkpoints.

A run that was trained is not trained again, a checkpoint that was measured is not measured again: what is
done stands beside the run's folder, with what was asked for. A run that was cut off begins anew where its
speed is asked for, and else goes on from its last checkpoint. A folder with anything else is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.processes import Watched, run_command
from benchmarks.report import RUN_PACKAGES, circumstances, comparable, own_cores, rows_of
from configs.load import load_config
from configs.yaml_text import dump_value, read_mapping
from pipeline.evaluation.passk import TaskCount, mean_pass_at_k
from pipeline.host.files import files_digest, read_object, write_text_atomically
from pipeline.models.files import is_adapter_folder
from pipeline.record.metrics import read_metrics
from rewards.digest import judge_digest

# Beside the run's folder: what was asked, and once it is trained whole, what was watched. Beside a
# measurement: what was asked.
_NOTE = ".contest.json"
# In a note: on which processor and versions a run was, where its speed is asked for.
_ON = "on"
_TRAINED_ON, _MEASURED_ON = DATA_DIGESTS = ("dataset_digest", "tasks_digest")
# Speeds are read off the lines of single steps. Not among what was asked: earlier versions did not say it.
_EVERY_STEP = ("--set", "output.logging_steps=1")
_REPORTED = (
    "generation/tokens_per_s",
    "generation/seconds",
    "train/seconds",
    "rollout/wait_s",
    "rollout/completion_length",
    "rollout/feedback_tokens",
    "rollout/pass_rate",
    "rollout/zero_signal_share",
    "rewards/cache_hit_rate",
    "generation/tokens_saved",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who runs: a console script and its own arguments."""

    name: str
    command: Literal["train_accelerated", "train_code_grpo"]
    arguments: tuple[str, ...] = ()


def accelerated(name: str, mode: str, settings: Mapping[str, object]) -> Contender:
    """train_accelerated in ``mode`` with ``settings``, dotted names with their values."""
    words = (word for path, value in settings.items() for word in ("--set", f"{path}={dump_value(value)}"))
    return Contender(name=name, command="train_accelerated", arguments=("--speedup-mode", mode, *words))


def train(
    contender: Contender, given: argparse.Namespace, *, name: str, num_steps: int, seed: int
) -> tuple[Path, Watched]:
    """The folder of the run ``name`` of ``contender``, trained now or earlier, and what the run took.

    ``given`` are ``contest.options``; without --save-every a run saves its last step, and what
    ``output.save_minutes`` asks for. Nothing is measured before or after it: that is the same work for all.
    Raises as ``run_command`` does, and ValueError where the folder holds another run, or one of another
    processor or other versions.
    """
    folder: Path = given.work / name
    arguments = _arguments(contender, given, name, num_steps, seed)
    # What it took is a figure of them.
    asked = {**_asked(contender, arguments, given), _ON: comparable(circumstances(*RUN_PACKAGES))}
    earlier = _noted(folder, asked).get("watched")
    if earlier is not None and _is_begun(folder):
        return folder, Watched(**earlier)
    # Cut off in the middle, its speed would be that of two halves.
    _begin(folder, asked)
    words = [*arguments, *_EVERY_STEP]
    watched = command(contender.command, words, given, log=given.work / f"{name}.log")
    _note(folder, {**asked, "watched": asdict(watched)})
    return folder, watched


def train_or_resume(
    contender: Contender, given: argparse.Namespace, *, name: str, num_steps: int, seed: int
) -> Path:
    """As ``train``, for a run whose speed is not asked for: one that was cut off is resumed."""
    folder: Path = given.work / name
    arguments = _arguments(contender, given, name, num_steps, seed)
    asked = _asked(contender, arguments, given)
    if not (_noted(folder, asked) and _is_begun(folder)):
        _begin(folder, asked)
        arguments += _EVERY_STEP
    elif (folder / "summary.json").is_file():
        return folder
    else:
        arguments = ["--resume", str(folder)]
    command(contender.command, arguments, given, log=given.work / f"{name}.log")
    return folder


def _arguments(
    contender: Contender, given: argparse.Namespace, name: str, num_steps: int, seed: int
) -> list[str]:
    return [
        *(("--config", str(given.config)) if given.config else ()),
        *(word for text in given.set for word in ("--set", text)),
        *contender.arguments,
        *("--output-dir", str(given.work), "--run-name", name),
        *("--max-steps", str(num_steps), "--seed", str(seed)),
        *("--set", "evaluation.enabled=false"),
        *("--set", f"output.save_steps={getattr(given, 'save_every', num_steps)}"),
        *("--set", "output.save_total_limit=1000"),
        *("--set", "runtime.progress=plain"),
    ]


def config_digest(file: Path) -> str:
    """Changes with what a file of settings says, not with its comments."""
    said = json.dumps(read_mapping(file), sort_keys=True, default=str)
    return hashlib.sha256(said.encode("utf-8")).hexdigest()[:16]


def _asked(contender: Contender, arguments: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    asked: dict[str, Any] = {"asked": [contender.command, *arguments, f"{given.cores} cores"]}
    if given.config:
        asked["config"] = config_digest(given.config)
    own = [word.partition("=")[2] for word in contender.arguments if word.startswith("dataset.name=")]
    return {**asked, _TRAINED_ON: file_digest(own[-1]) if own else data_digests(given)[_TRAINED_ON]}


def data_digests(given: argparse.Namespace) -> dict[str, str | None]:
    """Of the files of tasks that are trained on and measured on; None for sets that have a name."""
    data_set = load_config(given.config, getattr(given, "mode", None), given.set).dataset.name
    return {_TRAINED_ON: file_digest(data_set), _MEASURED_ON: file_digest(getattr(given, "tasks", ""))}


def _noted(folder: Path, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The note on the run in ``folder``; nothing where that is not the one that is ``asked`` for."""
    note = _note_of(folder)
    noted = read_object(note) if note.is_file() else {}
    # Earlier versions noted the names of files alone, and not where the run was.
    earlier = {name: asked.get(name) for name in ("config", _ON, _TRAINED_ON)} | dict(noted)
    return noted if all(earlier.get(name) == value for name, value in asked.items()) else {}


def _is_begun(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


def _begin(folder: Path, asked: Mapping[str, Any]) -> None:
    """Make room for what is ``asked``. Raises ValueError where the folder may hold others' hours."""
    if folder.exists() and not _noted(folder, asked):
        raise ValueError(
            f"{folder}: holds a run of other settings, of another processor or of other versions, or one "
            "that nobody noted; give another --work, or move the folder away"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _note(folder, {**asked, "watched": None})


def _note(folder: Path, noted: Mapping[str, Any]) -> None:
    write_text_atomically(_note_of(folder), json.dumps(noted) + "\n")


def _note_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_NOTE}")


def evaluated(
    output: Path, *, model: str, tasks: str, how: Sequence[str], given: argparse.Namespace
) -> tuple[Path, Path]:
    """Verdicts and report that ``evaluate_humaneval`` makes beside ``output``, now or earlier.

    Those of another model, other tasks or another ``how``, by another code that judges, of another processor
    or other versions are made anew, and those of earlier versions, which noted none of these: whoever has a
    result of them does not ask here.
    """
    results, report = Path(f"{output}_results.jsonl"), Path(f"{output}_report.json")
    words = ["--model", model, "--tasks", tasks, *how]
    asked = {
        **{"asked": words, "model": _model_digest(model), "tasks": file_digest(tasks)},
        **{"judge": judge_digest(), _ON: comparable(circumstances(*RUN_PACKAGES))},
    }
    note = _note_of(output)
    noted = read_object(note) if note.is_file() else None
    if noted != asked:
        # Without a note there may be a journal, which knows by itself what it belongs to.
        journal = (Path(f"{output}_journal.jsonl"),) if noted is not None else ()
        for path in (results, report, *journal):
            path.unlink(missing_ok=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        _note(output, asked)
    if not (results.is_file() and report.is_file()):
        words += ["--output", str(output)]
        command("evaluate_humaneval", words, given, log=output.with_suffix(".log"))
    return results, report


def _model_digest(model: str) -> str | None:
    """Another one for a run that was trained anew; None for a model that is a name."""
    return files_digest(Path(model)) if Path(model).is_dir() else None


def file_digest(tasks: str | Path) -> str | None:
    """Changes with the content of a file; None for a name that is none."""
    path = Path(tasks)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else None


def command(name: str, arguments: Sequence[str], given: argparse.Namespace, *, log: Path) -> Watched:
    """See ``run_command``; on the cores and in the time that were given."""
    cores = own_cores(given.cores)
    return run_command(name, arguments, cores=cores, log=log, deadline_s=given.timeout)


def speed_of(folder: Path, *, num_warmup: int, num_tail: int) -> dict[str, Any]:
    """Trained completions over the wall clock, from the end of the warm-up to the step before the tail.

    In the tail of a run nothing is generated for later steps any more, so it would flatter runs that work
    ahead. Those may write the completions of as many steps at once: steps are counted by so many, if there
    are as many. Raises ValueError for a run of too few steps, RuntimeError for one in which something died.
    """
    ((num_restarts,),) = rows_of(folder, "SELECT COUNT(*) FROM events WHERE kind = 'restart'")
    if num_restarts > 0:
        raise RuntimeError(f"{folder}: {num_restarts} restarts in the run; remove the folder, measure again")
    ((num_rollouts,),) = rows_of(folder, "SELECT COUNT(*) FROM rollouts")
    rows = read_metrics(folder / "metrics.jsonl")
    end = len(rows) - num_tail
    if (num_counted := end - num_warmup) >= num_tail > 0:
        end -= num_counted % num_tail
    if num_warmup < 1 or end <= num_warmup:
        raise ValueError(
            f"{folder}: {len(rows)} steps; {num_warmup} of warm-up (at least 1) and {num_tail} of the tail "
            "leave none to measure"
        )
    counted = rows[num_warmup:end]
    seconds = float(rows[end - 1]["time_s"] or 0.0) - float(rows[num_warmup - 1]["time_s"] or 0.0)
    num_samples = sum((row["step/samples_per_s"] or 0.0) * (row["step/seconds"] or 0.0) for row in counted)
    return {
        "num_steps": len(counted),
        "seconds": seconds,
        "samples_per_s": num_samples / seconds,
        # Of the whole run: it is where groups that were refilled or thinned out show.
        "rollouts_per_step": num_rollouts / len(rows),
        "step_s": seconds / len(counted),
        "means": {
            name: sum(values) / len(values)
            for name in _REPORTED
            if (values := [row[name] or 0.0 for row in counted if name in row])
        },
    }


def checkpoints(folder: Path) -> dict[int, Path]:
    """Step -> the model or adapter saved there; the last one of a run under its number of steps."""
    rows = read_metrics(folder / "metrics.jsonl")
    found = {
        int(path.name.rpartition("-")[2]): path
        for path in (folder / "checkpoints").iterdir()
        if path.name.rpartition("-")[2].isdigit()
        and ((path / "config.json").is_file() or is_adapter_folder(path))
    }
    final = folder / "checkpoints" / "final"
    if final.is_dir():
        found[int(rows[-1]["step"] or 0)] = final
    return dict(sorted(found.items()))


def drop_optimiser_states(folder: Path) -> None:
    """Free the disk: what is measured later needs the weights alone."""
    for path in (folder / "checkpoints").glob("*/*.pt"):
        path.unlink(missing_ok=True)


def read_pass_rates(results: Path) -> dict[str, list[int]]:
    """[passed, judged] of every task of a file of verdicts."""
    return counted_in(results, lambda verdict: verdict["passed"])


def counted_in(results: Path, judge: Callable[[Mapping[str, Any]], bool | None]) -> dict[str, list[int]]:
    """[true, judged] of every task of a file of verdicts; those without ``judge``'s answer are left out."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for line in results.read_text(encoding="utf-8").splitlines():
        verdict = json.loads(line)
        if (answer := judge(verdict)) is not None:
            found[verdict["task_id"]][0] += answer
            found[verdict["task_id"]][1] += 1
    return dict(found)


def pass_at_1(counts: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """The estimate with its 95 % interval over tasks."""
    return asdict(mean_pass_at_k(task_counts(counts), 1))


def task_counts(counts: Mapping[str, Sequence[int]]) -> list[TaskCount]:
    """What ``read_pass_rates`` found, as pipeline.evaluation.passk takes it."""
    return [
        TaskCount(task_id=task_id, num_correct=passed, num_samples=judged)
        for task_id, (passed, judged) in counts.items()
    ]
