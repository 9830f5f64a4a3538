"""Keys that follow from what makes a job."""

from __future__ import annotations

from osqueue.core.made_keys import made_key
from osqueue.core.state import key_text
from osqueue.model.keys import drawn_ms, is_key, shard_of
from tests.support.machines import NOON_MS


def test_a_made_key_has_the_form_of_one_that_is_drawn() -> None:
    key = made_key(NOON_MS, 3, b"what makes it", 5)
    assert is_key(key_text(key))
    assert (drawn_ms(key), shard_of(key)) == (NOON_MS, 5)


def test_the_same_makes_the_same_key_and_anything_else_another() -> None:
    told = (NOON_MS, 3, b"it", 0)
    others = (
        (NOON_MS + 1, 3, b"it", 0),
        (NOON_MS, 4, b"it", 0),
        (NOON_MS, 3, b"if", 0),
        (NOON_MS, 3, b"it", 1),
    )
    assert made_key(*told) == made_key(*told)
    assert len({made_key(*each) for each in (told, *others)}) == 5


def test_of_one_moment_they_sort_by_their_order() -> None:
    keys = [made_key(NOON_MS, at, b"it %d" % at, 0) for at in range(100)]
    assert keys == sorted(keys) < [made_key(NOON_MS + 1, 0, b"it", 0)]
