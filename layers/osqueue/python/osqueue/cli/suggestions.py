"""What somebody may have meant who named a command that there is not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

SHOWN_MAX = 3
# What other tools call it.
ELSEWHERE = {
    "list": "ls",
    "get": "show",
    "status": "show",
    "info": "stats",
    "rerun": "retry",
    "requeue": "redrive",
    "replay": "redrive",
    "push": "enqueue",
    "add": "enqueue",
    "pop": "claim",
    "work": "worker",
    "run": "worker",
    "explain": "why",
    "check": "doctor",
    "delete": "purge",
}
_UNKNOWN = re.compile(r"No such command '(.+?)'(?=\.$|\. \(?(?:Did you mean|Possible))", re.DOTALL)


def did_you_mean(error: click.UsageError) -> str | None:
    """The error for a command that there is not, with those that may be meant; None for any other error."""
    found = _UNKNOWN.match(error.format_message())
    if found is None or error.ctx is None:
        return None
    word = found[1]
    names = _near(error.ctx, word)
    hint = ""
    if names:
        quoted = [f"'{name}'" for name in names]
        hint = f" Did you mean {' or '.join(filter(None, (', '.join(quoted[:-1]), quoted[-1])))}?"
    return f"No such command '{word}'.{hint}"


def _near(ctx: click.Context, word: str) -> list[str]:
    """Paths of commands of that name, those of the same group first; or of a similar one."""
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    paths = list(_paths(root.command, "osqueue"))
    here = f"osqueue{ctx.command_path.removeprefix(root.command_path)} "
    paths.sort(key=lambda path: not path.startswith(here))  # stable: else in the order of the help
    last = {path: path.rpartition(" ")[2] for path in paths}
    for name in (word, ELSEWHERE.get(word, word)):
        same = [path for path in paths if last[path] == name]
        if same:
            mine = [path for path in same if path.startswith(here)] if ctx is not root else []
            return (mine or same)[:SHOWN_MAX]
    from difflib import get_close_matches  # here: only who mistypes needs it

    close = get_close_matches(word, dict.fromkeys(last.values()), 1, 0.7)
    return [path for name in close for path in paths if last[path] == name][:SHOWN_MAX]


def _paths(group: click.Group, path: str) -> Iterator[str]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        yield f"{path} {name}"
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from _paths(command, f"{path} {name}")
