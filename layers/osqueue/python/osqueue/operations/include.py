"""Reading what was asked for beside jobs: payloads, results and tracebacks, in as few requests as possible.

What cannot be given is named with the reason, and keeps nothing else from being shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..commit.effects import Flow
from ..core.rows import StoredContent
from ..core.state import COMPLETED, content_bytes
from ..errors import OsqueueError
from ..model.codecs import Codec
from ..model.included import PAYLOAD, RESULT, TRACEBACK
from ..objects.lookup import JobLocation
from ..objects.segments import read_bodies


def bytes_asked(found: JobLocation, include: Sequence[str]) -> int:
    """How many bytes of contents would be read."""
    asked = [_content(found, name) for name in include if name != TRACEBACK]
    return sum(content_bytes(each) for each in asked if not isinstance(each, str))


def included(
    root: str, codec: Codec, found: Sequence[JobLocation], include: Sequence[str], most: int | None
) -> Flow[list[dict[str, Any]]]:
    """The fields of ``IncludedContents`` for jobs of one shard; one content has at most ``most`` bytes."""
    fields: list[dict[str, Any]] = [{} for _ in found]
    reads: list[tuple[int, str, StoredContent]] = []
    for at, each in enumerate(found):
        if TRACEBACK in include:
            fields[at][TRACEBACK] = each.job.trace or None
        for name in include:
            if name == TRACEBACK:
                continue
            content = _content(each, name)
            if not isinstance(content, str) and most is not None and content_bytes(content) > most:
                content = (
                    f"its {content_bytes(content):,} bytes do not fit into an answer of the API. Read it with a queue"
                    " object that is connected to the store itself."
                )
            if isinstance(content, str):
                _leave_out(fields[at], name, content)
            else:
                reads.append((at, name, content))
    bodies = (yield from read_bodies(root, [content for _, _, content in reads])) if reads else []
    for (at, name, _), data in zip(reads, bodies, strict=True):
        try:
            fields[at][name] = _decoded(codec, found[at], name, data)
        except OsqueueError as error:
            _leave_out(fields[at], name, error.message)
    return fields


def _content(found: JobLocation, name: str) -> StoredContent | str:
    """Where a content is, or why there is none."""
    if name == PAYLOAD:
        return found.job.payload if found.row is None else "a job that is over keeps none."
    if found.row is None or found.state != COMPLETED:
        return f"the job is {found.state}: it has none."
    return found.row.result


def _decoded(codec: Codec, found: JobLocation, name: str, data: bytes | OsqueueError) -> Any:
    if name == PAYLOAD:
        return codec.decode_payload(data, found.job.codec)
    if isinstance(data, OsqueueError):
        raise data
    row = found.row
    assert row is not None
    if not data and not row.codec:
        return None
    return codec.decode(data, row.codec or found.job.codec, field=RESULT)


def _leave_out(fields: dict[str, Any], name: str, why: str) -> None:
    fields.setdefault("left_out", {})[name] = why
