"""Exit codes, and how an error ends a command: one line on standard error, never a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import click

from ..errors import NotSupported, OsqueueError, Rejected, Throttled, Timeout, Unavailable
from .output import Output, OutputFailed
from .suggestions import did_you_mean

OK = 0
REFUSED = 1  # the operation was refused, the lease is lost, the thing is not there, an object is damaged
USAGE = 2  # the command or a value in it is wrong
UNAVAILABLE = 3  # the store gave no answer or refuses (the message says what to change), or was too busy
UNWRITTEN = 4  # standard output took no answer; what was done stays done
INTERRUPTED = 130  # Ctrl-C


def exit_code(error: OsqueueError) -> int:
    """What a failed operation ends the command with."""
    if isinstance(error, Rejected | NotSupported):
        return USAGE
    if isinstance(error, Unavailable | Timeout | Throttled):
        return UNAVAILABLE
    return UNWRITTEN if isinstance(error, OutputFailed) else REFUSED


class CommandFailed(click.ClickException):
    """A command that ends with an error; click prints it through ``show``."""

    def __init__(self, output: Output, code: str, message: str, status: int, **more: Any) -> None:
        super().__init__(message)
        self.output = output
        self.code = code
        self.exit_code = status  # type: ignore[misc]
        self.more = more

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error."""
        self.output.error(self.code, self.message, **self.more)


class DataRefused(OsqueueError):
    """Lines of input that are wrong: nothing was done with them."""

    code = "rejected"


def command_failed(output: Output, error: BaseException) -> click.ClickException:
    """How an exception ends a command; raises it again when it is nothing foreseen."""
    match error:
        case CommandFailed():
            return error
        case click.UsageError():
            where = error.ctx.command_path if error.ctx is not None else "osqueue"
            text = _masked(did_you_mean(error) or error.format_message(), output.words).rstrip(".")
            text = f"{text}{'' if text.endswith('?') else '.'}{_remedy(error)} See '{where} --help'."
            return CommandFailed(output, "usage", text, USAGE)
        case click.ClickException():
            return CommandFailed(output, "usage", _masked(error.format_message(), output.words), USAGE)
        case OsqueueError():
            fields = ("field", "retry_after", "job_id", "type")  # that some kinds of errors have
            more = {name: getattr(error, name, None) or None for name in fields}
            return CommandFailed(output, error.code, error.message, exit_code(error), **more)
        case KeyboardInterrupt():
            return CommandFailed(output, "interrupted", "stopped by Ctrl-C.", INTERRUPTED)
        case _:
            raise error


def _masked(text: str, words: Sequence[str]) -> str:
    """Return the text of a usage error without secrets. Only the words of the command line show where each one ends."""
    from ..masking import printable, without_secrets  # here, because most commands succeed

    for word in sorted(words, key=len, reverse=True):
        option, mark, value = word.partition("=")
        quoted = value if mark and option.startswith("-") else word
        if "://" in quoted or "@" in quoted:
            for form in (quoted, repr(quoted)[1:-1]):
                text = text.replace(form, printable(quoted))
    return without_secrets(text)


def _remedy(error: click.UsageError) -> str:
    """What an error of click's own leaves out."""
    if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdigit():
        return " A negative number needs -- before it, as in: -- -5."
    return ""
