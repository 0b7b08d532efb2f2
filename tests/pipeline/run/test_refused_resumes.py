"""What a resume may change, what it is refused for, and what the ledger keeps of a change."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from configs.errors import ConfigError, show
from configs.load import load_config, render
from pipeline.record.ledger import Ledger
from pipeline.run.resume import CHANGED, begun_with, refuse_other_tasks, refuse_resume, terms_of, value_before
from tests.pipeline.fake_stages import TASKS, FakeRun, make_config
from tests.pipeline.run.test_resume import config_of, ledger_of, write_checkpoint


@pytest.mark.parametrize(
    "change",
    ["training.seed=7", "training.optim=adamw_8bit", "acceleration.curriculum.skip_ahead.enabled=true"],
)
def test_what_a_checkpoint_holds_the_state_of_changes_only_where_there_is_none(
    tmp_path: Path, change: str
) -> None:
    config = config_of(0, save_steps=4)
    folder = FakeRun(tmp_path, config).train().folder
    folder.write_config(render(config))
    changed = load_config(folder.config, overrides=[change])
    path = change.partition("=")[0]
    assert [text.split()[0] for text in refuse_resume(folder.path, changed)] == [path]
    write_checkpoint(folder.checkpoint(4), 4)
    with pytest.raises(ConfigError, match=rf"{path}: .* as in .*config\.yaml; for another, --model CHECKP"):
        refuse_resume(folder.path, changed)


def test_a_named_run_that_was_moved_is_resumed_where_it_lies_and_under_no_new_name(tmp_path: Path) -> None:
    config = config_of(0)
    folder = FakeRun(tmp_path, config).train().folder
    folder.write_config(render(load_config(None, overrides=["output.name=as-begun"])))
    assert not [text for text in refuse_resume(folder.path, load_config(folder.config)) if "output" in text]
    with pytest.raises(ConfigError, match=r"output\.name: .*a resumed run stays in its folder"):
        refuse_resume(folder.path, load_config(folder.config, overrides=["output.name=other"]))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ("rewards.per_source={mbpp: {syntax_failure_reward: 0.25}}", "rewards.per_source"),
        ("generation.engine_kwargs={max_num_batched_tokens: 512}", "generation.engine_kwargs"),
    ],
)
def test_an_entry_that_a_mapping_had_not_is_a_change(tmp_path: Path, change: str, path: str) -> None:
    config = config_of(0)
    folder = FakeRun(tmp_path, config).train().folder
    folder.write_config(render(config))
    (found,) = refuse_resume(folder.path, load_config(folder.config, overrides=[change]))
    assert found.startswith(f"{path} {{}} -> ")
    assert value_before(f"{CHANGED}{found}") == (path, {})


def test_tasks_other_than_the_checkpoints_are_told_apart_from_the_ledger_alone(tmp_path: Path) -> None:
    config = config_of(0, save_steps=4)
    folder = FakeRun(tmp_path, config).train().folder
    others = (*TASKS, replace(TASKS[0], task_id="t6"))
    refuse_other_tasks(folder.path, others, config)  # begins anew: no checkpoint
    assert begun_with(folder.path, others, config) is None
    write_checkpoint(folder.checkpoint(4), 4)
    refuse_other_tasks(folder.path, TASKS, config)
    with pytest.raises(
        ValueError, match=r"was saved for other tasks.* put back the data set, or the setting"
    ):
        refuse_other_tasks(folder.path, others, config)


def test_a_resumed_run_keeps_the_tasks_that_it_began_with(tmp_path: Path) -> None:
    """What is left out of a data set may be decided otherwise today."""
    config = config_of(0, save_steps=4)
    folder = FakeRun(tmp_path, config).train().folder
    write_checkpoint(folder.checkpoint(4), 4)
    others = (*TASKS[:2], replace(TASKS[0], task_id="t6"), *TASKS[2:])
    assert begun_with(folder.path, others, config) is None, "this ledger has no tasks"
    with contextlib.closing(ledger_of(tmp_path)) as ledger:
        ledger.note_tasks(TASKS)
    assert begun_with(folder.path, others, config) == tuple(TASKS)
    assert begun_with(folder.path, others[1:], config) is None, "one of them is gone"


def test_a_checkpoint_of_steps_that_were_gone_back_from_is_none_to_go_on_from(tmp_path: Path) -> None:
    config = config_of(0, save_steps=4)
    folder = FakeRun(tmp_path, config).train().folder
    folder.write_config(render(config))
    write_checkpoint(folder.checkpoint(4), 4)
    write_checkpoint(folder.checkpoint(999), 999)
    assert config.training.max_steps < 999
    assert refuse_resume(folder.path, config) == []


def test_a_process_that_trained_nothing_did_not_change_the_runs_terms(tmp_path: Path) -> None:
    """Such as a resume that was refused after its ledger was opened."""
    config = config_of(0)
    folder = FakeRun(tmp_path, config).train().folder
    folder.write_config(render(config))
    Ledger(folder.db, terms_of(config_of(4))).close()
    assert refuse_resume(folder.path, load_config(folder.config)) == []


def test_the_value_of_before_is_read_from_a_change_as_it_is_noted(tmp_path: Path) -> None:
    config = make_config(generation={"assistant_prefill": "a -> b"})
    folder = FakeRun(tmp_path, config).train().folder
    folder.write_config(render(config))
    overrides = ["training.learning_rate=0.5", "generation.assistant_prefill=c", "execution.modules=[numpy]"]
    changes = refuse_resume(folder.path, load_config(folder.config, overrides=overrides))
    assert dict(value_before(f"{CHANGED}{change}") for change in changes) == {
        "training.learning_rate": 3e-5,
        "generation.assistant_prefill": "a -> b",
        "execution.modules": [],
    }
    long = show(["module"] * 20)
    with pytest.raises(ValueError, match=r"execution\.modules was changed since, from a value that is not"):
        value_before(f"{CHANGED}execution.modules {long} -> []")
