"""``osqueue token``: a token for ``osqueue serve``, and what its file of tokens holds of it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence

import click
import msgspec

from ..clock import MACHINE
from ..contract.roles import Role
from ..errors import Rejected
from .options import Command, json_option
from .output import Output

TOKEN_BITS = 256
NAME_CHARS_MAX = 100

EPILOG = """\b
Examples:
  osqueue token checkout --role enqueue --queue emails
  osqueue token workers --role work --role enqueue >> tokens.toml   (the token itself is on standard error)
"""


@click.command("token", short_help="Make a token for callers of 'osqueue serve'.", cls=Command, epilog=EPILOG)
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    required=True,
    help="What its holder may do; may be given again.",
)
@click.option(
    "--queue", "queues", multiple=True, help="For this queue, or those that a pattern like 'orders-*' fits."
)
@json_option
@click.pass_obj
def token(output: Output, name: str, roles: Sequence[str], queues: Sequence[str]) -> None:
    """Draw a token for a caller named NAME, and print the lines for the server's file of tokens.

    The token goes to standard error, once: the file holds its digest alone. Callers put it into OSQUEUE_TOKEN and write
    ?auth=bearer behind the address, or send it as Authorization: Bearer TOKEN.
    """
    from ..asgi.tokens import digest_of

    if not name.isprintable() or not 0 < len(name) <= NAME_CHARS_MAX:
        raise Rejected(f"name: 1 to {NAME_CHARS_MAX} printable characters.", field="name")
    drawn = urlsafe_b64encode(MACHINE.bits(TOKEN_BITS).to_bytes(TOKEN_BITS // 8, "big")).decode().rstrip("=")
    entry: dict[str, object] = {"name": name, "sha256": digest_of(drawn), "roles": list(roles)}
    if queues:
        entry["queues"] = list(queues)
    if output.tables or not output.json:
        lines = [f"{field} = {msgspec.json.encode(value).decode()}" for field, value in entry.items()]
        for line in ["[[token]]", *lines]:
            output.text(line)
        output.note(f"the token, which is shown this once: {drawn}")
    else:
        output.document({**entry, "token": drawn})
