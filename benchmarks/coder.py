"""A real code model before and after `make coder`, on tests that nobody here wrote.

    python -m benchmarks.coder --mbpp mbpp.jsonl --seeds 4 5 6 --keep

Trains configs/recipes/coder.yaml once a seed, and measures the base model once and each trained one: MBPP's
test part, HumanEval and the held-out ladder, with 8 samples a task at temperature 0.8, and greedy.
Differences are paired by task, with 95 % intervals over tasks; for greedy answers the exact McNemar test.
``--mbpp`` is a file with all of MBPP, of which the training part is trained on; without it both parts come
from the hub.

Training a model took 140 minutes on two slow cores (seed 7); measuring it takes longer. A
training that was cut off goes on from its last checkpoint. Each of a model's six measurements stands in
--output when it is done, and the same command goes on with the next; --limit stops after so many. A trained
model is removed when all of its own stand there; with --keep it stays.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.report import percent, table_text
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.training_run import (
    Contender,
    checkpoints,
    counted_in,
    pass_at_1,
    read_pass_rates,
    task_counts,
    train_or_resume,
)
from configs.load import load_config
from curriculum.audit.cheats import looks_up
from curriculum.mbpp import is_for_training
from curriculum.sources import load_named_tasks
from pipeline.evaluation.passk import Comparison, compare, mean_pass_at_k
from rewards.extract import extract_code

RECIPE = Path("configs/recipes/coder.yaml")
NUM_SAMPLES = 8
WAYS: Mapping[str, tuple[str, ...]] = {
    "greedy": ("--greedy",),
    "sampled": ("-n", str(NUM_SAMPLES), "--temperature", "0.8"),
}
SETS = ("mbpp", "humaneval", "ladder-heldout")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line says and is not there yet; all that is there."""
    config = load_config(given.config, None, given.set)
    store = contest.open_store(given)
    tasks = {name: name for name in SETS}
    training = config.dataset.name
    if given.mbpp is not None:
        training, tasks["mbpp"] = _parts(given.mbpp, given.work)
    whose = {contest.BASE: None, **{f"seed {seed}": seed for seed in given.seeds}}
    # What takes minutes comes first.
    keys = {who: [f"{who}/{name}/{way}" for way in WAYS for name in SETS] for who in whose}
    for key in store.missing(chain.from_iterable(keys.values()), given.limit):
        who, name, way = key.split("/")
        model, seed = config.model.name, whose[who]
        if seed is not None:
            model = _trained(seed, training, config.training.max_steps, given)
        file = key.replace("/", "-").replace(" ", "-")
        found = contest.verdicts(model, tasks[name], WAYS[way], given, file=file)
        store.add(key, {"tasks": read_pass_rates(found), "look_ups": look_ups(found, tasks[name])})
        if seed is not None and not given.keep and not any(store.missing(keys[who])):
            shutil.rmtree(given.work / _run_name(seed), ignore_errors=True)
    return store.result()


def look_ups(results: Path, tasks: str) -> dict[str, list[int]]:
    """[looked up, answered] of every task of a file of verdicts: see ``curriculum.audit.cheats.looks_up``."""
    by_id = {task.task_id: task for task in load_named_tasks(tasks)}

    def judge(verdict: Mapping[str, Any]) -> bool:
        task = by_id[verdict["task_id"]]
        return looks_up(task, extract_code(verdict["completion"], task.entry_point, task.prompt))

    return counted_in(results, judge)


def _parts(mbpp: Path, work: Path) -> tuple[str, str]:
    """The training and the test part of the file ``mbpp``, as files in ``work``.

    Raises ValueError where it holds no tasks of MBPP.
    """
    lines = [line for line in mbpp.read_text(encoding="utf-8").splitlines() if line.strip()]
    tasks = load_named_tasks(str(mbpp))
    work.mkdir(parents=True, exist_ok=True)
    paths = work / "mbpp_training.jsonl", work / "mbpp_test.jsonl"
    for path, is_training in zip(paths, (True, False), strict=True):
        part = [line for line, task in zip(lines, tasks, strict=True) if is_for_training(task) == is_training]
        if not part:
            raise ValueError(
                f"--mbpp: value {mbpp}: holds no task of MBPP's {path.stem.partition('_')[2]} part"
            )
        path.write_text("\n".join([*part, ""]), encoding="utf-8")
    return str(paths[0]), str(paths[1])


def _trained(seed: int, training: str, num_steps: int, given: argparse.Namespace) -> str:
    """The model that the recipe makes of ``seed`` on the tasks ``training``, now or earlier."""
    contender = Contender(name="coder", command="train_accelerated", arguments=("--dataset", training))
    folder = train_or_resume(contender, given, name=_run_name(seed), num_steps=num_steps, seed=seed)
    return str(checkpoints(folder)[num_steps])


def _run_name(seed: int) -> str:
    return f"coder-{seed}"


def table(result: Mapping[str, Any]) -> str:
    """Base and every seed, set by set, in Markdown."""
    runs = result["runs"]
    rows = []
    for who in dict.fromkeys(key.partition("/")[0] for key in runs):
        for name in SETS:
            cells = _cells(runs, who, name)
            if any(cells):
                rows.append([who, name, *cells])
    head = [
        "",
        "tasks",
        "pass@1",
        f"pass@{NUM_SAMPLES}",
        "above the base",
        "look-ups",
        "greedy",
        "greedy, above the base",
    ]
    settings = result["settings"]
    above = (
        f"{settings['model']}; {NUM_SAMPLES} samples a task at temperature 0.8, and greedy; 95 % intervals "
        "over tasks, differences paired by task. Look-ups are sampled answers that compare with the "
        "arguments of two examples of their prompt."
    )
    return table_text(head, rows, above=above)


def _cells(runs: Mapping[str, Any], who: str, name: str) -> list[str]:
    greedy, sampled = (runs.get(f"{who}/{name}/{way}") for way in WAYS)
    cells = ["", "", "", "", "", ""]
    if sampled is not None:
        counts = task_counts(sampled["tasks"])
        cells[0] = percent(pass_at_1(sampled["tasks"]))
        # A task whose own tests cannot run judges next to no answer.
        whole = [count for count in counts if count.num_samples == NUM_SAMPLES]
        cells[1] = f"{100 * mean_pass_at_k(whole, NUM_SAMPLES).mean:.1f} %" if whole else ""
        if "look_ups" in sampled:
            num_looked_up, num_answers = map(sum, zip(*sampled["look_ups"].values(), strict=True))
            cells[3] = f"{100 * num_looked_up / num_answers:.1f} %"
    if greedy is not None:
        cells[4] = percent(pass_at_1(greedy["tasks"]))
    if who != contest.BASE:
        for place, way, run in ((2, "sampled", sampled), (5, "greedy", greedy)):
            base = runs.get(f"{contest.BASE}/{name}/{way}")
            if run is not None and base is not None:
                found = compare(task_counts(base["tasks"]), task_counts(run["tasks"]))
                cells[place] = _difference(found)
    return cells


def _difference(found: Comparison) -> str:
    said = percent(asdict(found.difference), "+")
    if "McNemar" not in found.test:
        return said
    won, lost = len(found.second_better), len(found.first_better)
    return f"{said}; {won} won, {lost} lost, p = {found.p_value:.2g}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = contest.options(__doc__, "coder", seed=None)
    # The seed stands among the settings of earlier results, and has to be the same to go on with them.
    parser.set_defaults(config=RECIPE, seed=0)
    parser.add_argument("--mbpp", type=Path, metavar="FILE", help="all of MBPP; default: from the hub")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of the runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(contest.run_to_the_end(lambda: measure(parse()), table))
