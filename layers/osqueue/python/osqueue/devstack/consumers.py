"""Functions of the user's own beside those of the bundle: consumers of queues, invoked as wakes ask for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..contract.functions import FunctionSpec
from ..errors import Rejected, shown

TIMEOUT_S = 300
MEMORY_MB = 512
HANDLER = "handler"  # where none is named

_FORM = re.compile(r"(?P<queue>[^=]+)=(?P<path>[^:]+\.py)(?::(?P<function>\w+))?")
_NOT_A_NAME = re.compile(r"[^\w-]+")


class LocalConsumer(Struct, frozen=True):
    """One, and the queue that it is attached to."""

    queue: str
    name: str
    file: Path
    function: str

    @property
    def spec(self) -> FunctionSpec:
        """As the stack's table has functions."""
        return FunctionSpec(f"consumer-{self.name}", f"consumes {self.queue}", TIMEOUT_S, MEMORY_MB)

    @property
    def handler(self) -> str:
        """Its handler's name in the folder that it lies in."""
        return f"{self.file.stem}.{self.function}"


def read_consumer(text: str) -> LocalConsumer:
    """A consumer from ``emails=folder/handler.py`` or ``emails=file.py:function``. Raises Rejected.

    Its name is that of the file, or of the folder where the file is a ``handler.py``.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise Rejected(
            f"consumer: {shown(text)} is not QUEUE=FILE.py or QUEUE=FILE.py:FUNCTION, such as"
            " emails=mailer/handler.py.",
            field="consumer",
        )
    file = Path(found["path"]).absolute()
    if not file.is_file():
        raise Rejected(f"consumer: there is no file {file}.", field="consumer")
    plain = file.parent.name if file.stem == HANDLER else file.stem
    name = _NOT_A_NAME.sub("-", plain) or HANDLER
    return LocalConsumer(found["queue"], name, file, found["function"] or HANDLER)


def read_consumers(texts: Sequence[str]) -> tuple[LocalConsumer, ...]:
    """All of them; no two have one name."""
    found = tuple(read_consumer(each) for each in texts)
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Rejected(
            f"consumer: two are named {twice!r}. A consumer is named after its file, or the folder of a handler.py.",
            field="consumer",
        )
    return found
