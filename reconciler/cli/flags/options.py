"""Groups of options as dataclasses: each option is described once and shared by every command that takes it.

Invariant: a command is a plain function of few arguments; how its groups become options is known here alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with every dataclass parameter replaced by that dataclass's fields, for typer to look at."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if name != "return" and is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name in inspect.signature(function).parameters:
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(_parameter(name, hints[name], inspect.signature(function).parameters[name].default))

    @wraps(function)
    def call(**given: Any) -> Any:  # noqa: ANN401 - whatever the options are
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return function(**given)

    shown: Any = call
    del shown.__wrapped__  # typer would look through it, at the groups
    shown.__annotations__ = {}
    shown.__signature__ = inspect.Signature(parameters)
    return call


def _options(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(field.name, hints[field.name], _default(field)) for field in fields(group)]


def _default(field: Field[Any]) -> Any:  # noqa: ANN401 - of any type
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:  # noqa: ANN401 - of any type
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
