"""What the documents tell people to type: each command is run, or is in a list of what needs more.

    ```sh              run here, in a folder with the files that the pages show and a small run in runs/NAME
    ```hardware WHY    not run: a GPU, the hub, a server; flags and settings of ours are checked
    ```json FILE       a file that the page asks for, likewise ```python and ```yaml
    indented           run here as ```sh is, in a folder of its own; remarks may follow

What trains or samples is run up to where it would start: all before that is real. docs/cluster.md needs a
cluster as a whole, so that only its settings are checked.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from configs.errors import ConfigError
from configs.load import load_config, render, resolve
from configs.schema import Config
from configs.techniques import value_at
from curriculum.__main__ import main as curriculum_main
from pipeline.__main__ import main as pipeline_main
from pipeline.cli import evaluate_humaneval, train_accelerated, train_code_grpo
from pipeline.record.checkpoints import save_checkpoint
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.fake_stages import FakeRun, make_config
from tests.pipeline.tiny_model import make_model, make_tokenizer, save_model

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
AT_THE_TOP = ("README.md", "SPEEDUP_GUIDE.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = sorted(path for path in DOCS.glob("*.md") if path.name != "cluster.md")
_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What stands behind a dot and is a file, not a setting.
_ENDINGS = frozenset({"json", "jsonl", "md", "py", "yaml"})
_COMMAND = re.compile(r"(make|train_\w+|evaluate_humaneval|python -m) ")

# Run by another test, which is quick because it leaves out what takes long: command -> file and function.
RUN_ELSEWHERE = {
    "python -m pipeline doctor": "tests/pipeline/doctor/test_doctor.py::"
    "test_the_facts_of_this_machine_are_gathered",
    "python -m rewards.openenv ladder --port 8000": "tests/rewards/test_peers.py::"
    "test_openenv_serves_our_tasks",
    "python -m pipeline replay runs/NAME": "tests/pipeline/run/test_replay.py::"
    "test_a_run_that_was_resumed_is_the_same_bit_for_bit",
}
# Flags of train_accelerated with which it trains nothing.
PRINTS_ONLY = frozenset({"--plan", "--explain", "--dry-run", "--show-config"})
# Flags with which a command goes on until Ctrl-C, needs the hub, or ends an engine of this machine's user.
STAYS = frozenset({"--watch", "--push-to-hub", "--stop-resident"})
Command = Callable[[Sequence[str]], int]
# Of vLLM and curl, which their own projects test.
_OTHERS = ("vllm", "python -m vllm.entrypoints.openai.api_server", "curl")
COMMANDS: Mapping[str, Command] = {
    "train_accelerated": train_accelerated,
    "train_code_grpo": train_code_grpo,
    "evaluate_humaneval": evaluate_humaneval,
    "python -m curriculum": curriculum_main,
    "python -m pipeline": pipeline_main,
}


def blocks(page: Path, *kinds: str) -> list[tuple[str, str]]:
    """The word behind the kind, and the text, of each block of one of ``kinds``."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(word, text) for kind, word, text in found if kind in kinds]


def commands_of(kind: str) -> list[tuple[str, str]]:
    """Every command in blocks of ``kind``, with its page's name."""
    return [
        (page.name, command)
        for page in PAGES
        for _, text in blocks(page, kind)
        for command in text.replace("\\\n", " ").splitlines()
        if command.strip()
    ]


def split(command: str) -> tuple[str, list[str]]:
    """The program, with -m and its module, and its arguments."""
    words = shlex.split(command)
    length = 3 if words[:2] == ["python", "-m"] else 1
    return " ".join(words[:length]), words[length:]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages show, and with a run of four steps and one with an adapter."""
    place = tmp_path_factory.mktemp("docs")
    for page in PAGES:
        for name, text in blocks(page, "json", "python", "yaml"):
            (place / name).write_text(text, encoding="utf-8")
    fake = make_config(training={"max_steps": 4}, output={"save_steps": 2})
    FakeRun(place, fake).train()
    run = place / "runs" / "NAME"
    run.parent.mkdir()
    shutil.move(place / "run", run)
    (run / "config.yaml").write_text(render(Config.model_validate({"training": {"max_steps": 4}})))
    seconds = {
        "step/seconds": 1.0,
        "generation/seconds": 0.8,
        "generation/tokens": 64.0,
        "train/seconds": 0.5,
    }
    lines = [json.dumps({"step": step, "time_s": step, **seconds}) for step in range(1, 5)]
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    shutil.rmtree(run / "checkpoints")
    state = {"step": 4, "policy_version": 4}
    save_checkpoint(run / "checkpoints" / "step-000004", make_model(), make_tokenizer(), {}, state)
    adapter = place / "runs" / "LORA" / "checkpoints" / "step-000005"
    adapter.parent.mkdir(parents=True)
    publish_random_adapter(save_model(place / "base-model"), adapter, 1)
    (place / "configs").symlink_to(ROOT / "configs")
    # As benchmarks.coder leaves it; for the commands it is any file of tasks.
    (place / "runs" / "benchmark").mkdir()
    shutil.copy(place / "tasks.jsonl", place / "runs" / "benchmark" / "mbpp_training.jsonl")
    return place


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would have been trained or sampled: the arguments of the entry modules, which do nothing."""
    calls: list[object] = []
    for module, *functions in (
        ("run.orchestrator", "run_training"),
        ("run.startup", "run_profile"),
        ("baseline.baseline", "run_baseline"),
    ):
        monkeypatch.setitem(sys.modules, f"pipeline.{module}", _stub(module, functions, calls))
    monkeypatch.setattr("pipeline.run.early_start.launched", nullcontext)
    return calls


def _stub(module: str, functions: Sequence[str], calls: list[object]) -> ModuleType:
    def start(*arguments: object) -> int:
        calls.append(arguments)
        return 0

    stub = ModuleType(f"pipeline.{module}")
    for function in functions:
        setattr(stub, function, start)
    return stub


def run(command: str, folder: Path, trained: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run ``command`` in ``folder``, and see that it trains or samples if it should."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    program, arguments = split(command)
    if program == "evaluate_humaneval" and "--model" in arguments:
        monkeypatch.setitem(
            sys.modules,
            "pipeline.evaluation.command",
            _stub("evaluation_command", ["run_evaluation"], trained),
        )
    assert COMMANDS[program](arguments) == 0
    is_a_run = program.startswith("train") or "--model" in arguments
    assert len(trained) == (is_a_run and not PRINTS_ONLY & set(arguments))


@pytest.mark.parametrize(("page", "command"), commands_of("sh"))
def test_a_command_in_the_documents_does_what_it_should(
    page: str, command: str, place: Path, trained: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    if command not in RUN_ELSEWHERE:
        run(command, place, trained, monkeypatch)


def commands_set_off() -> list[str]:
    """Lines of all documents that are set off and begin with a command, each once, without remarks."""
    pages = [*(ROOT / name for name in AT_THE_TOP), *PAGES]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    lines = re.findall(r"^    (\S.*)$", text.replace("\\\n", " "), re.MULTILINE)
    commands = [shlex.join(shlex.split(line, comments=True)) for line in lines if _COMMAND.match(line)]
    return list(dict.fromkeys(commands))


@pytest.mark.parametrize("command", commands_set_off())
def test_a_command_that_is_set_off_does_what_it_should(
    command: str, place: Path, trained: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There samples.jsonl is one of HumanEval's; what sandbox and benchmarks do has tests of its own."""
    folder = place / "readme"
    if not folder.exists():
        folder.mkdir()
        for name in ("runs", "configs", "tasks.jsonl"):
            (folder / name).symlink_to(place / name)
        sample = {"task_id": "HumanEval/0", "completion": "    return False\n"}
        (folder / "samples.jsonl").write_text(json.dumps(sample) + "\n", encoding="utf-8")
    program, arguments = split(command)
    if program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE)
    elif program.startswith(("python -m sandbox", "python -m benchmarks.")):
        assert importlib.util.find_spec(program.rpartition(" ")[2]) is not None
    elif STAYS & set(arguments):
        flags = (ROOT / "pipeline" / "flags.py").read_text(encoding="utf-8")
        assert all(re.search(rf'"{flag}[ "]', flags) for flag in STAYS & set(arguments))
    elif command not in RUN_ELSEWHERE:
        # Of each task of the ladder; the audit itself has tests of its own.
        monkeypatch.setattr("curriculum.audit.command.MAX_MUTANTS", 3)
        run(command, folder, trained, monkeypatch)


def test_what_is_run_elsewhere_is_run_there() -> None:
    for command, test in RUN_ELSEWHERE.items():
        assert command in {text for _, text in commands_of("sh")}
        file, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")


def test_the_solutions_in_the_documents_are_judged_as_the_page_says(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert evaluate_humaneval(["--tasks", "tasks.jsonl", "--samples", "samples.jsonl"]) == 0
    lines = (place / "samples.jsonl_results.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["passed"] for line in lines] == [True, False]


@pytest.mark.parametrize(("page", "command"), commands_of("hardware"))
def test_a_command_that_needs_more_has_flags_and_settings_that_exist(
    page: str,
    command: str,
    trained: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    program, arguments = split(command)
    if program == "train_accelerated" and "--watch" not in arguments:
        assert train_accelerated(arguments) == 0
        assert len(trained) == 1
    elif program in COMMANDS:
        # Refused for this flag, and for no other.
        with pytest.raises(SystemExit) as stop:
            COMMANDS[program]([*arguments, "--no-such-flag"])
        assert stop.value.code == 2
        assert "unrecognized arguments: --no-such-flag" in capsys.readouterr().err
    else:
        assert program in _OTHERS


def test_every_block_that_is_not_run_says_why() -> None:
    for page in PAGES:
        assert all(reason.strip() for reason, _ in blocks(page, "hardware"))


def test_the_settings_of_the_cluster_page_exist() -> None:
    text = (DOCS / "cluster.md").read_text(encoding="utf-8")
    settings = re.findall(r"--set ([\w.]+=[\w./]+)", text)
    assert len(settings) > 5
    for setting in settings:
        load_config(ROOT / "configs" / "cluster.yaml", overrides=[setting])


def documents() -> list[Path]:
    return [*sorted(DOCS.glob("*.md")), *(ROOT / name for name in AT_THE_TOP)]


def links(page: Path) -> list[tuple[Path, str]]:
    """The files that ``page`` links to (itself for ""), each with the heading as it stands in the link."""
    found = re.findall(r"\]\(([^)#:]*)(?:#([^):]*))?\)", page.read_text(encoding="utf-8"))
    return [((page.parent / file).resolve() if file else page, heading) for file, heading in found]


def headings(page: Path) -> set[str]:
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in documents():
        for target, heading in links(page):
            assert target.exists(), f"{page.name}: {target}"
            assert not heading or heading in headings(target), f"{page.name}: {target.name}#{heading}"


def test_every_page_can_be_reached_from_the_readme_and_stands_in_the_contents() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting += [target for target, _ in links(page)]
    assert set(documents()) <= reached
    contents = {target for target, _ in links(DOCS / "README.md")}
    assert set(DOCS.glob("*.md")) - {DOCS / "README.md"} <= contents


def test_files_and_modules_that_the_documents_name_exist() -> None:
    for page in documents():
        text = page.read_text(encoding="utf-8")
        for file in re.findall(
            r"(?<![\w/])((?:pipeline|configs|rewards|curriculum|sandbox)/[\w/*]*(?:\.\w+|/))", text
        ):
            assert list(ROOT.glob(file)), f"{page.name}: {file}"
        for module in re.findall(r"(?:python -m |`)((?:pipeline|benchmarks)[\w.]*\w)", text):
            assert importlib.util.find_spec(module) is not None, f"{page.name}: {module}"


def test_settings_that_the_documents_name_exist() -> None:
    sections = "|".join(Config.model_fields)
    for page in documents():
        named = re.findall(rf"`((?:{sections})\.[a-z0-9_.]*[a-z0-9_])", page.read_text(encoding="utf-8"))
        for setting in named:
            if setting.rpartition(".")[2] not in _ENDINGS:
                value_at(Config(), setting)


def settings_from_trl() -> list[tuple[str, str, str]]:
    """The rows of docs/from_trl.md: TRL's name, ours ("" where there is none), what differs."""
    text = (DOCS / "from_trl.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(\w+)` \| (?:`([\w.]+)`|-) \| (.*?) ?\|$", text, re.MULTILINE)


def fields_of_trl() -> set[str]:
    """Names of GRPOConfig's fields and of what it inherits, from the source: importing it takes seconds."""
    names: set[str] = set()
    for package, files in {
        "trl": ("trainer/grpo_config.py", "trainer/base_config.py"),
        "transformers": ("training_args.py",),
    }.items():
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        for file in files:
            tree = ast.parse((Path(spec.origin).parent / file).read_text(encoding="utf-8"))
            classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
            names |= {
                node.target.id
                for one in classes
                for node in one.body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            }
    return names


def test_both_names_of_each_setting_exist() -> None:
    known = fields_of_trl()
    assert len(known) > 100
    rows = settings_from_trl()
    assert len(rows) > 50
    for theirs, ours, note in rows:
        assert theirs in known, theirs
        if ours:
            value_at(Config(), ours)
        else:
            assert note, f"{theirs}: says neither where it is nor why it is not there"


def test_a_mistaken_name_of_trls_is_answered_as_the_table_says() -> None:
    for theirs, ours, _ in settings_from_trl():
        with pytest.raises(ConfigError) as caught:
            resolve(overrides=[f"lora.{theirs}=1"])
        _, asks, guess = str(caught.value).partition("; did you mean ")
        assert ours in guess.partition("?")[0] if ours else not asks, theirs
        assert ours or "not offered here: docs/from_trl.md" in str(caught.value), theirs


def test_every_setting_that_both_have_by_the_same_name_is_in_the_table() -> None:
    listed = {ours for _, ours, _ in settings_from_trl()}
    known = fields_of_trl()
    shared = {
        f"{section}.{name}"
        for section in ("training", "grpo", "generation")
        for name in type(getattr(Config(), section)).model_fields
        if name in known
    }
    assert shared <= listed, shared - listed
