"""What the evaluation of a model is asked for, and what its verdicts come to."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from configs.schema import ExecutionConfig
from curriculum.audit.model import SAMPLES_A_TASK, model_pass_rates
from pipeline.flags import FLAGS, evaluation_options

# In the place of evaluate_humaneval, which takes minutes and cannot be made to lose a verdict.
PROGRAM = """#!{python}
import json, sys
from pathlib import Path
words = sys.argv[1:]
samples = Path(words[words.index("--output") + 1])
samples.with_name("words.json").write_text(json.dumps(words))
verdicts = {verdicts!r}
lines = [json.dumps({{"task_id": name, "passed": passed}}) for name, passed in verdicts]
Path(f"{{samples}}_results.jsonl").write_text("\\n".join(lines))
sys.exit({status})
"""


def program(folder: Path, verdicts: list[tuple[str, bool | None]], status: int = 0) -> str:
    path = folder / "evaluate"
    path.write_text(PROGRAM.format(python=sys.executable, verdicts=verdicts, status=status), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_what_could_not_be_judged_is_no_failure(tmp_path: Path) -> None:
    verdicts = [("a", True), ("a", None), ("a", True), ("a", False), ("b", None), ("c", False)]
    rates = model_pass_rates(
        program(tmp_path, verdicts), "tiny", "tasks.jsonl", None, ExecutionConfig(), tmp_path
    )
    assert rates == {"a": pytest.approx(2 / 3), "c": 0.0}


def test_answers_run_under_the_limits_that_references_have(tmp_path: Path) -> None:
    execution = ExecutionConfig(timeout=0.5, modules=["numpy", "yaml"], allow_unsafe=True)
    tasks = tmp_path / "tasks.jsonl"
    tasks.touch()
    model_pass_rates(program(tmp_path, []), "tiny", str(tasks), 3, execution, tmp_path)
    words = json.loads((tmp_path / "words.json").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser()
    for flag in FLAGS["evaluate_humaneval"]:
        flag.add_to(parser)
    options = evaluation_options(parser.parse_args(words))
    assert (options.model, options.tasks, options.limit) == ("tiny", str(tasks), 3)
    assert options.num_samples == SAMPLES_A_TASK
    assert (options.timeout, options.modules, options.allow_unsafe) == (0.5, ("numpy", "yaml"), True)


def test_an_evaluation_that_fails_is_no_rate(tmp_path: Path) -> None:
    failing = program(tmp_path, [("a", True)], status=2)
    with pytest.raises(ValueError, match="--model: value 'tiny'"):
        model_pass_rates(failing, "tiny", "tasks.jsonl", None, ExecutionConfig(), tmp_path)
