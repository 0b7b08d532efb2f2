"""The section ``rollouts``: how many answers one rollout may have, and what is told between them."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from configs.section import PositiveFraction, PositiveInt, Section

FeedbackKind = Literal["public", "verdict", "full"]
# Of the tokens between two answers, the chat template's own words included.
MAX_FEEDBACK_LENGTH: Final = 256


class RolloutsConfig(Section):
    """One answer, or a conversation: after an answer that fails its tests feedback and another answer."""

    max_turns: PositiveInt = Field(
        default=1,
        description="answers a rollout may have; one that failed is followed by feedback and another",
    )
    feedback: FeedbackKind = Field(
        default="public",
        description="verdict: how the program failed; public: and what it gives for the first example of the "
        "prompt that it fails; full: and the first test that failed, which no longer counts "
        "(docs/turns.md)",
    )
    custom_feedback: str | None = Field(
        default=None,
        description="your own function of the feedback, package.module:function (docs/turns.md)",
    )
    turn_discount: PositiveFraction = Field(
        default=1.0, description="the reward of a pass is multiplied by this for each turn before it"
    )
