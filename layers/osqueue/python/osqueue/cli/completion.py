"""``osqueue completion``: what a shell needs to complete commands, options and names of queues."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "osqueue"
VARIABLE = "_OSQUEUE_COMPLETE"

EPILOG = """\b
Examples:
  eval "$(osqueue completion bash)"                                    (in ~/.bashrc)
  eval "$(osqueue completion zsh)"                                     (in ~/.zshrc)
  osqueue completion fish > ~/.config/fish/completions/osqueue.fish
"""


@click.command("completion", short_help="Print what a shell completes commands with.", epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, and the names of queues at an address."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    click.echo(kind.source_template % made.source_vars())
