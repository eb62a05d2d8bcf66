"""Give a command one frozen dataclass of options instead of a long parameter list.

@dataclass(frozen=True)
class TrainOptions:
    log: Annotated[Path, typer.Argument(help="A job log.")]
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0

@app.command()
@options(TrainOptions)
def train(options: TrainOptions) -> None: ...

Fields are the command's arguments and options, in order. A dataclass may inherit the fields of another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, get_type_hints

Options = TypeVar("Options")
#: Of every generator of random numbers that a command uses: numpy refuses negative seeds, torch refuses longer ones.
MOST_SEED = 2**32 - 1


def options(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """A decorator: function of one `kind` -> function with a parameter for each of its fields, as typer reads it."""
    hints = get_type_hints(kind, include_extras=True)

    def decorate(command: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(command)
        def call(**values: Any) -> None:
            command(kind(**values))

        parameters = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
            )
            for field in fields(kind)  # type: ignore[arg-type]
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del call.__wrapped__
        return call

    return decorate


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default
