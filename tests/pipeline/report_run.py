"""A run folder as a run leaves it, of any length, without a model: what the report's tests look at.

The numbers follow simple curves and a seeded generator; the tables are the ledger's own.
"""

from __future__ import annotations

import json
import math
import random
import socket
from pathlib import Path

from configs.load import render
from configs.schema import Config
from curriculum.task import Task
from pipeline.host.spans import CHECKPOINT, EVALUATION, GENERATION, REWARDS, TRAINER, WAITING, WEIGHTS, Span
from pipeline.record.ledger_rows import note_spans, note_tasks
from pipeline.record.ledger_tables import open_ledger
from sandbox.result import CallTest

START_S = 1_760_000_000.0
NUM_GROUPS, NUM_GENERATIONS = 2, 4
TASKS = tuple(
    Task(
        task_id=f"made/add_{number}",
        prompt=f"Write a function add_{number}(x) that adds {number} to x.",
        entry_point=f"add_{number}",
        call_tests=(CallTest(args=(1,), expected=1 + number),),
        difficulty=1 + number % 3,
        family=f"add_{number}",
        source="made",
    )
    for number in range(6)
)
STEP_S = 4.0


def make_run(path: Path, num_steps: int, *, max_steps: int | None = None, num_shown: int = 40) -> Path:
    """A run of ``num_steps`` steps in ``path``; the rollouts and spans of the last ``num_shown`` are kept.

    It has ended where ``max_steps`` is not given.
    """
    path.mkdir(parents=True)
    max_steps = max_steps or num_steps
    config = Config.model_validate({"training": {"max_steps": max_steps, "seed": 7}})
    (path / "config.yaml").write_text(render(config))
    (path / "checkpoints").mkdir()
    database = open_ledger(path / "run.db")
    rng = random.Random(0)
    database.execute("BEGIN")
    database.execute(
        "INSERT INTO runs (run_id, started_at, pid, host) VALUES (1, ?, 1, ?)",
        (START_S, socket.gethostname()),
    )
    note_tasks(database, TASKS)
    draw_id, spans = 0, []
    for step in range(1, num_steps + 1):
        ended_s = START_S + 10 + STEP_S * step
        metrics = json.dumps(_metrics(step, num_steps, rng))
        database.execute(
            "INSERT INTO steps VALUES (?, 1, ?, 'committed', ?, NULL, ?, '{}', '[]', '{}', 0, ?, 200, ?)",
            (step, step, step, metrics, STEP_S, ended_s),
        )
        if step > num_steps - num_shown or step == 1:
            for group in range(NUM_GROUPS):
                draw_id += 1
                task = TASKS[(step * NUM_GROUPS + group) % len(TASKS)]
                database.execute(
                    "INSERT INTO draws VALUES (?, ?, ?, ?, 0, 'trained', NULL, ?, NULL, ?)",
                    (draw_id, task.task_id, step, step - 1, step, ended_s - STEP_S),
                )
                for place in range(NUM_GENERATIONS):
                    row = _rollout(draw_id, place, task, step / num_steps, step, rng)
                    database.execute(f"INSERT INTO rollouts VALUES ({', '.join('?' * 19)})", row)
            spans = _spans(step, draw_id, ended_s, rng)
            note_spans(database, step, spans, num_shown)
    database.execute(
        "INSERT INTO events (time, kind, text) VALUES (?, 'isolation', 'sandbox level L3')", (START_S + 2,)
    )
    database.execute("COMMIT")
    database.close()
    if max_steps == num_steps:
        _write_ends(path)
    return path


def _metrics(step: int, num_steps: int, rng: random.Random) -> dict[str, float]:
    done = step / num_steps
    reward = 0.45 + 0.35 * done + rng.gauss(0, 0.03)
    return {
        "rollout/reward_mean": reward,
        "rollout/reward_std": 0.25 - 0.1 * done,
        "rollout/pass_rate": max(0.0, min(1.0, reward - 0.2)),
        "rollout/completion_length": 60 + 20 * math.sin(9 * done),
        "rollout/truncated_share": 0.2 * (1 - done),
        "rollout/syntax_failure_share": 0.1 * (1 - done),
        "rollout/zero_signal_share": 0.2 + 0.2 * done,
        "reward_part/tests": reward,
        "reward_part/syntax": 0.9 + 0.1 * done,
        "level_pass_rate/level_1": 0.5 + 0.4 * done,
        "level_pass_rate/level_2": 0.3 + 0.3 * done,
        "train/loss": rng.gauss(0, 0.02),
        "train/grad_norm": 0.4 + abs(rng.gauss(0, 0.1)),
        "train/entropy": 0.6 - 0.2 * done,
        "train/staleness_mean": 0.5 + 0.3 * rng.random(),
        "train/staleness_max": 1.0,
        "train/ratio_p01": 0.7,
        "train/ratio_p50": 1.0,
        "train/ratio_p99": 1.4,
        "train/ratio_max": 2.5,
        "train/kl": 0.01,
        "train/clipped_share": 0.02,
        "generation/tokens_per_s": 420 + rng.gauss(0, 20),
        "train/tokens_per_s": 250 + rng.gauss(0, 10),
        "rewards/cache_hit_rate": 0.6 * done,
        "rewards/seconds_mean": 0.015,
        "step/seconds": STEP_S,
        "step/samples_per_s": NUM_GROUPS * NUM_GENERATIONS / STEP_S,
        "weights/update_s": 0.5,
        "weights/pause_s": 0.03,
    }


def _rollout(
    draw_id: int, place: int, task: Task, done: float, step: int, rng: random.Random
) -> tuple[object, ...]:
    passed = rng.random() < 0.2 + 0.6 * done
    number = task.task_id.rpartition("_")[2]
    body = f"    # </script><b>step {step}</b>\n    return x + {number if passed else 0}\n```"
    text = f"def {task.entry_point}(x):\n{body}"
    breakdown = {"syntax": 1.0, "tests": float(passed), "execution": 1.0, "lint": 0.95, "complexity": 1.0}
    detail = "" if passed else "test 0: wrong value"
    outcome = "pass" if passed else "wrong"
    return (
        draw_id, 0, place, 1, f"{draw_id}/{place}", text, 40, "stop", step - 1, step - 1,
        1.0 if passed else 0.45, json.dumps(breakdown), outcome, detail, passed, place == 3, 0.012, "",
        json.dumps([_turn(text)] if place == 2 else []),
    )  # fmt: skip


def _turn(text: str) -> dict[str, object]:
    return {
        "text": text.replace("return x", "return -x"),
        "num_tokens": 20,
        "feedback": "Your program gives a <i>wrong</i> result in a test.",
        "num_feedback_tokens": 31,
        "reward": 0.45,
        "outcome": "wrong",
        "detail": "test 0: wrong value",
    }


def _spans(step: int, last_draw: int, ended_s: float, rng: random.Random) -> list[Span]:
    started_s = ended_s - STEP_S
    spans = []
    for group in range(NUM_GROUPS):
        draw_id = last_draw - NUM_GROUPS + 1 + group
        written_s = started_s + 1.2 + 0.6 * group + 0.3 * rng.random()
        name = TASKS[(step * NUM_GROUPS + group) % len(TASKS)].task_id
        spans.append(_span(GENERATION, name, started_s, written_s, draw_id, 160))
        spans.append(_span(REWARDS, name, written_s - 0.3, written_s + 0.2, draw_id))
    scored_s = max(span.ended_s for span in spans)
    spans.append(_span(WAITING, f"step {step} waits for rollouts", started_s, scored_s))
    spans.append(_span(TRAINER, f"step {step}: update", scored_s, ended_s - 0.6, None, 320))
    spans.append(_span(WEIGHTS, f"write version {step}", ended_s - 0.6, ended_s - 0.4))
    spans.append(_span(WEIGHTS, f"load version {step}", ended_s - 0.4, ended_s))
    if step % 10 == 0:
        spans.append(_span(CHECKPOINT, f"step-{step:06d}", ended_s - 0.3, ended_s))
    if step == 1:
        spans.append(_span(EVALUATION, "before training", START_S + 4, started_s))
    return spans


def _span(
    stage: str,
    name: str,
    started_s: float,
    ended_s: float,
    draw_id: int | None = None,
    num_tokens: int | None = None,
) -> Span:
    return Span(
        stage=stage, name=name, started_s=started_s, ended_s=ended_s, draw_id=draw_id, num_tokens=num_tokens
    )


def _write_ends(path: Path) -> None:
    estimates = {
        "before": {"mean": 0.31, "low": 0.25, "high": 0.37, "num_tasks": 40},
        "after": {"mean": 0.48, "low": 0.41, "high": 0.55, "num_tasks": 40},
    }
    for when, estimate in estimates.items():
        result = {
            "reward": 1.0 if when == "after" else 0.4,
            "breakdown": {"syntax": 1.0, "tests": float(when == "after")},
            "outcome": "pass" if when == "after" else "wrong",
            "detail": "",
            "passed": when == "after",
        }
        sample = {"task_id": "made/held_out", "text": f"def f(x):\n    return {when!r}", "result": result}
        record = {"pass_at_1": estimate, "samples": [sample]}
        (path / f"evaluation_{when}.json").write_text(json.dumps(record))
    summary = {
        "seconds": {"startup": 9.0, "training": 160.0, "total": 175.0},
        "evaluation": {
            **{when: {"pass_at_1": estimate, "num_samples": 160} for when, estimate in estimates.items()},
            "difference": {"mean": 0.17, "low": 0.08, "high": 0.26, "num_tasks": 40},
        },
        "isolation_level": "L3",
        "hardware": {"device": "cpu", "cpu": "made", "num_cores": 2},
        "versions": {"torch": "2.13.0"},
    }
    (path / "summary.json").write_text(json.dumps(summary))
