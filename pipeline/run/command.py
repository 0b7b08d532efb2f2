"""Runs the main job, or measures its start, with the engine's process starting meanwhile."""

from __future__ import annotations

from configs.schema import Config
from pipeline.host import startup
from pipeline.run.early_start import launched


def run_training(config: Config, resume: str | None, verbose: bool) -> int:
    """Run the whole job; returns the exit status. Raises as pipeline.run.orchestrator.run_training."""
    with launched(config) as early:
        with startup.span("driver", "import the run"):
            # Imported here: the engine's process and Ray are starting meanwhile.
            from pipeline.run.orchestrator import run_training as run

        return run(config, resume, verbose, early)


def run_profile(config: Config) -> int:
    """Measure a start; returns the exit status. See pipeline.run.startup."""
    from pipeline.run.startup import profiled

    with profiled(config) as profile:
        with launched(config) as early:
            with startup.span("driver", "import the run"):
                from pipeline.run.startup import run_until_first_score as run

            run(config, profile.folder, early)
        profile.publish()
    return 0
