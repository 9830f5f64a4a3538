"""Archive parts under a race: writers that read the same head write the same part."""

from __future__ import annotations

from msgspec.structs import replace

from osqueue.core.draft import Context, Draft, Object
from osqueue.core.settle import archive
from osqueue.core.state import COMPLETED, Finished, Job, State

NOW_MS = 1_700_000_000_000
FINISHED = tuple(Finished(Job(bytes([n]) * 16, b"", NOW_MS), COMPLETED, NOW_MS) for n in range(3))
HEAD = State(commit=b"h" * 16, epoch=1, seq=41, now_ms=NOW_MS, finished=FINISHED)


def part(head: State, commit: bytes) -> Object:
    """The part that a writer stages whose own commit would be called ``commit``."""
    draft = Draft(head, Context(NOW_MS + 5, commit, 7, "emails", {}))
    archive(draft)
    [staged] = draft.spills
    return staged


def test_racing_writers_write_one_part_not_a_copy_each() -> None:
    one, other = part(HEAD, b"a" * 16), part(HEAD, b"b" * 16)
    assert (one.name, one.body) == (other.name, other.body)


def test_parts_of_different_heads_have_different_names() -> None:
    rival = replace(
        HEAD, commit=b"r" * 16
    )  # another commit in the same place, of a store restored to the past
    later = replace(HEAD, seq=42)
    assert len({part(head, b"a" * 16).name for head in (HEAD, rival, later)}) == 3
