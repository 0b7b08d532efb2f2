"""The base of all sections of the configuration, and the kinds of numbers that their fields hold.

Knows no setting.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from configs.errors import ConfigError, Problem, wrong_value

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
FractionBelowOne = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
# The name of a set of tasks; that of a file may begin with the home directory.
TaskSetName = Annotated[Text, AfterValidator(os.path.expanduser)]


class Section(BaseModel):
    """Base of all sections: frozen; an unknown key, a value of another type, NaN and inf are errors.

    A whole number is taken where a number is wanted; nothing else is converted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def _problems(self) -> Iterable[Problem]:
        """What is wrong with values that are right each by itself."""
        return ()

    @model_validator(mode="after")
    def _refuse_problems(self) -> Self:
        if problems := list(self._problems()):
            raise ConfigError(problems)
        return self


def is_module_name(name: str) -> bool:
    """Whether an import statement could hold ``name``."""
    return all(part.isidentifier() for part in name.split("."))


def module_name_problems(field: str, names: Sequence[str]) -> list[Problem]:
    """One problem for each name that no import statement could hold."""
    wrong = [name for name in names if not is_module_name(name)]
    return [wrong_value(field, name, "names of Python modules, such as numpy") for name in wrong]
