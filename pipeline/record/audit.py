"""Does run.db add up? Every draw accounted for once, no token too old, nothing of lost weights trained on.

    python -m pipeline audit runs/NAME

Reads what is written there and believes none of the code that wrote it: it does not use
pipeline.record.ledger. One line a check; exit status 1 when any is violated, 2 for a file that cannot be
read. Changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.command_line import make_parser, run_command
from pipeline.record.draw_states import NONE_PASSED
from pipeline.record.ledger_tables import reading

_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule, what it was held against ("12 draws"), and a text for each violation."""

    rule: str
    seen: str
    violations: tuple[str, ...]

    def __str__(self) -> str:
        if not self.violations:
            return f"ok         {self.rule}: {self.seen}"
        shown = "; ".join(self.violations[:_MAX_SHOWN])
        more = len(self.violations) - _MAX_SHOWN
        return f"VIOLATION  {self.rule}: {shown}" + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All checks of one ledger."""

    checks: tuple[Check, ...]

    @property
    def violations(self) -> tuple[str, ...]:
        """Every violation, with its rule."""
        return tuple(f"{check.rule}: {text}" for check in self.checks for text in check.violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A rule as two queries: how many things it is held against, and a text for each that breaks it."""

    rule: str
    noun: str
    count: str
    broken: str


# The draws that count as trained, with the step that trained them and the terms of the process that ran it.
_VIEWS = """
    CREATE TEMP VIEW trained AS
        SELECT draws.draw_id, draws.attempt, steps.step, steps.run_id, runs.groups_per_step,
               runs.num_generations, runs.max_staleness
        FROM draws JOIN steps USING (step_id) JOIN runs USING (run_id)
        WHERE draws.status = 'trained';
    CREATE TEMP VIEW read AS
        SELECT trained.*, rollouts.run_id AS written_by, min_policy_version, max_policy_version, reward,
               outcome, receipt
        FROM trained JOIN rollouts USING (draw_id, attempt);
"""

_RULES = (
    _Rule(
        rule="each trained draw is trained by one committed step, which names it",
        noun="trained draws",
        count="SELECT COUNT(*) FROM draws WHERE status = 'trained'",
        broken="""
            WITH named AS (SELECT value AS draw_id, step_id, step FROM steps, json_each(steps.draw_ids)
                           WHERE status = 'committed')
            SELECT 'draw ' || draw_id || ' is named by steps ' || group_concat(step, ' and ')
            FROM named GROUP BY draw_id HAVING COUNT(*) > 1
            UNION ALL
            SELECT 'draw ' || named.draw_id || ' is named by step ' || step || ' but is '
                   || COALESCE(draws.status, 'unknown')
            FROM named LEFT JOIN draws USING (draw_id)
            WHERE draws.status IS NOT 'trained' OR draws.step_id IS NOT named.step_id
            UNION ALL
            SELECT 'draw ' || draw_id || ' is trained, and no committed step names it' FROM draws
            WHERE status = 'trained' AND draw_id NOT IN (SELECT draw_id FROM named)
        """,
    ),
    _Rule(
        rule="each other draw has ended with a reason, or is open in a run that has not finished",
        noun="other draws",
        count="SELECT COUNT(*) FROM draws WHERE status != 'trained'",
        broken="""
            WITH last AS (SELECT kind FROM events WHERE kind IN ('finished', 'rewind')
                          ORDER BY event_id DESC LIMIT 1)
            SELECT 'draw ' || draw_id || ' is ' || status || ' and the run has finished' FROM draws
            WHERE status IN ('issued', 'scored') AND (SELECT kind FROM last) = 'finished'
            UNION ALL
            SELECT 'draw ' || draw_id || ' is ' || status || ' without a reason' FROM draws
            WHERE status IN ('dropped', 'failed') AND COALESCE(reason, '') = ''
        """,
    ),
    _Rule(
        rule="steps are committed one after the other, each with the version it made",
        noun="steps",
        count="SELECT COUNT(*) FROM steps WHERE status = 'committed'",
        broken="""
            SELECT 'step ' || step || ' has place ' || place || ' and version ' || policy_version FROM (
                SELECT step, policy_version, row_number() OVER (ORDER BY step) AS place FROM steps
                WHERE status = 'committed') WHERE step != place OR policy_version != step
        """,
    ),
    _Rule(
        rule="each step has its full number of groups, and each group all its rollouts",
        noun="steps",
        count="SELECT COUNT(*) FROM steps JOIN runs USING (run_id)"
        " WHERE status = 'committed' AND groups_per_step IS NOT NULL",
        broken="""
            SELECT 'step ' || step || ' has ' || COUNT(draw_id) || ' of ' || runs.groups_per_step || ' groups'
            FROM steps JOIN runs USING (run_id) LEFT JOIN trained USING (step)
            WHERE status = 'committed' AND runs.groups_per_step IS NOT NULL
            GROUP BY step HAVING COUNT(draw_id) != runs.groups_per_step
            UNION ALL
            SELECT 'draw ' || draw_id || ' has ' || COUNT(rollout_id) || ' of ' || num_generations
                   || ' rollouts'
            FROM trained LEFT JOIN rollouts USING (draw_id, attempt) WHERE num_generations IS NOT NULL
            GROUP BY draw_id HAVING COUNT(rollout_id) != num_generations
        """,
    ),
    _Rule(
        rule="no trained token is older than max_staleness, or newer than the weights that trained on it",
        noun="trained rollouts",
        count="SELECT COUNT(*) FROM read WHERE max_staleness IS NOT NULL",
        broken="""
            SELECT 'draw ' || draw_id || ' has tokens of version ' || min_policy_version
                   || ', trained by step ' || step || ': ' || (step - 1 - min_policy_version)
                   || ' steps old, allowed ' || max_staleness
            FROM read WHERE step - 1 - min_policy_version > max_staleness
            UNION ALL
            SELECT 'draw ' || draw_id || ' has tokens of version ' || max_policy_version || ', which step '
                   || step || ' did not have yet'
            FROM read WHERE max_policy_version > step - 1 OR min_policy_version > max_policy_version
        """,
    ),
    _Rule(
        rule="no trained token was written by weights that were lost",
        noun="times that the run went back",
        count="SELECT COUNT(*) FROM runs WHERE rewound_to IS NOT NULL",
        broken="""
            SELECT DISTINCT 'draw ' || draw_id || ' has tokens of version ' || max_policy_version
                   || ', written before the run went back to step ' || later.rewound_to
            FROM read JOIN runs AS later ON later.run_id > written_by AND later.run_id <= read.run_id
            WHERE max_policy_version > later.rewound_to
        """,
    ),
    _Rule(
        rule="the weights that generated are those that the trainer published, in every update and rollout",
        noun="weight updates",
        count="SELECT COUNT(*) FROM weights",
        broken="""
            SELECT 'version ' || policy_version || ' was published as ' || published || ', held as ' || held
            FROM weights WHERE held != published
            UNION ALL
            SELECT 'draw ' || draw_id || ' was written by weights ' || max_policy_version || ' with receipt '
                   || COALESCE(NULLIF(receipt, ''), 'none') || ', published as '
                   || COALESCE(published, 'nothing')
            FROM read LEFT JOIN weights ON weights.run_id = written_by
                 AND weights.policy_version = max_policy_version
            WHERE receipt IS NOT COALESCE(published, '')
        """,
    ),
    _Rule(
        rule="a trained rollout has no reward exactly where scoring itself failed",
        noun="trained rollouts",
        count="SELECT COUNT(*) FROM read",
        broken="""
            SELECT 'draw ' || draw_id || ' has a rollout with outcome ' || outcome || ' and reward '
                   || COALESCE(reward, 'NULL')
            FROM read WHERE (reward IS NULL) != (outcome = 'infra_error')
            UNION ALL
            SELECT 'draw ' || draw_id || ' has ' || COUNT(reward) || ' rewards: no statistics'
            FROM read GROUP BY draw_id HAVING COUNT(reward) < 2
        """,
    ),
    _Rule(
        rule="a conversation went on after answers that failed, and its tokens are those of all answers",
        noun="conversations",
        count="SELECT COUNT(*) FROM rollouts WHERE json_array_length(turns) > 0",
        broken="""
            SELECT DISTINCT 'draw ' || draw_id || ' went on after an answer with outcome '
                   || json_extract(turn.value, '$.outcome')
            FROM rollouts, json_each(turns) AS turn
            WHERE json_extract(turn.value, '$.outcome') IN ('pass', 'infra_error')
            UNION ALL
            SELECT 'draw ' || draw_id || ' has ' || SUM(json_extract(turn.value, '$.num_tokens'))
                   || ' tokens in earlier answers, and ' || num_tokens || ' in all'
            FROM rollouts, json_each(turns) AS turn
            GROUP BY draw_id, attempt, place HAVING SUM(json_extract(turn.value, '$.num_tokens')) > num_tokens
        """,
    ),
    _Rule(
        rule="a draw that was replaced for want of signal had none, and was dropped",
        noun="replaced draws",
        count="SELECT COUNT(*) FROM gated",
        broken=f"""
            SELECT 'draw ' || draw_id || ' has ' || COUNT(DISTINCT reward) || ' different rewards'
            FROM gated JOIN draws USING (draw_id) JOIN rollouts USING (draw_id, attempt)
            WHERE COALESCE(reason, '') != '{NONE_PASSED}' GROUP BY draw_id HAVING COUNT(DISTINCT reward) != 1
            UNION ALL
            SELECT 'draw ' || draw_id || ' has an answer that passed'
            FROM gated JOIN draws USING (draw_id) JOIN rollouts USING (draw_id, attempt)
            WHERE reason = '{NONE_PASSED}' GROUP BY draw_id HAVING MAX(passed)
            UNION ALL
            SELECT 'draw ' || draw_id || ' is ' || status FROM gated JOIN draws USING (draw_id)
            WHERE status != 'dropped'
        """,
    ),
    _Rule(
        rule="no step replaced more draws than its budget allows",
        noun="steps with replaced draws",
        count="SELECT COUNT(DISTINCT step) FROM gated",
        broken="""
            WITH bounded AS (
                SELECT DISTINCT step, draw_id, max_gated
                FROM gated JOIN draws USING (draw_id) JOIN rollouts USING (draw_id, attempt)
                JOIN runs USING (run_id) WHERE max_gated IS NOT NULL)
            SELECT 'step ' || step || ' replaced ' || COUNT(*) || ' draws, allowed ' || MAX(max_gated)
            FROM bounded GROUP BY step HAVING COUNT(*) > MAX(max_gated)
        """,
    ),
)


def audit(path: Path) -> Audit:
    """Check the ledger of the run folder, or the run.db, at ``path``.

    Raises ValueError when there is none, or it is damaged or of another schema version.
    """
    with reading(path / "run.db" if path.is_dir() else path) as database:
        database.executescript(_VIEWS + "PRAGMA query_only = ON;")
        checks = []
        for rule in _RULES:
            (number,) = database.execute(rule.count).fetchone()
            broken = tuple(str(text) for (text,) in database.execute(rule.broken))
            checks.append(Check(rule=rule.rule, seen=f"{number} {rule.noun}", violations=broken))
    return Audit(checks=tuple(checks))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the checks of one run; returns the exit status."""
    parser = make_parser("python -m pipeline audit", str(__doc__).partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run folder, or its run.db")
    return run_command(parser, argv, _print)


def _print(arguments: argparse.Namespace) -> int:
    result = audit(arguments.run)
    for check in result.checks:
        print(check)
    return 1 if result.violations else 0
