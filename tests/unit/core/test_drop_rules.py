"""Which jobs a drop rule covers, by what they are and by the age of the span that they lie in."""

from __future__ import annotations

from osqueue.core.drop_rules import Drops, age_of, as_old, covering, may_cover, why_of
from osqueue.core.encoding import encode_segment, staged_name
from osqueue.core.state import (
    MIXED,
    NO_DROPS,
    Backlog,
    DropRule,
    DropRules,
    JobRecord,
    Lane,
    Links,
    Span,
    State,
)
from tests.support.machines import NOON_MS

RULE = DropRule(10, NOON_MS, ("a",), None, 500)


def job(**fields: object) -> JobRecord:
    return JobRecord(**{"key": bytes(16), "payload": b"1", "enqueued_ms": 499, "kind": "a", **fields})  # type: ignore[arg-type]


def span(born: int, *jobs: JobRecord, joined: int = 0, mixed: bool = True) -> Span:
    _, found = encode_segment(jobs or [job()], staged_name("segments", born, 1), mixed=mixed)
    return Span(**{name: getattr(found, name) for name in found.__struct_fields__} | {"joined": joined})


def rules(*rows: DropRule) -> Drops:
    return Drops(DropRules(rows), lambda *told: None)


def test_it_covers_what_matches_in_an_older_span() -> None:
    assert covering((RULE,), job(), span(9)) is RULE
    assert covering((RULE,), job(), span(10)) is None
    assert covering((RULE,), job(), span(3, joined=10)) is None
    assert covering((RULE,), job(), span(12, joined=9)) is RULE
    assert covering((RULE,), job(kind="b"), span(9)) is None
    assert covering((RULE,), job(enqueued_ms=500), span(9)) is None
    of_a_group = DropRule(10, 0, None, "g")
    assert covering((RULE, of_a_group), job(kind="b", group="g"), span(9)) is of_a_group
    assert covering((of_a_group,), job(group="h"), span(9)) is None
    of_a_batch = DropRule(10, 0, batch=b"b")
    assert covering((of_a_batch,), job(links=Links(batch=b"b")), span(9)) is of_a_batch
    assert covering((of_a_batch,), job(links=Links(batch=b"c")), span(9)) is None
    assert covering((of_a_batch,), job(), span(9)) is None


def test_labels_tell_where_it_may_cover_something() -> None:
    here = span(9, job(), job(kind="b", group="g"))
    assert may_cover(RULE, (MIXED, here))
    assert not may_cover(RULE, (MIXED, span(10, job())))
    assert not may_cover(DropRule(10, 0, ("c",)), (MIXED, here))
    assert may_cover(DropRule(10, 0, None, "g"), (MIXED, here))
    assert not may_cover(DropRule(10, 0, ("a",), "g"), (MIXED, here))
    assert not may_cover(DropRule(10, 0, None, "h"), (MIXED, here))
    assert may_cover(DropRule(10, 0, ("c",), "h"), (MIXED, span(9, mixed=False)))  # it does not tell


def test_a_lane_of_a_kind_tells_by_itself() -> None:
    here = span(9, mixed=False)
    assert may_cover(RULE, ("a", here))
    assert not may_cover(RULE, ("b", here))
    assert not may_cover(DropRule(10, 0, None, "g"), ("a", here))
    assert may_cover(DropRule(10, 0), ("a", here))


def test_only_spans_of_one_side_come_together_and_are_as_old_as_the_youngest() -> None:
    drops = rules(DropRule(5, 0), DropRule(8, 0))
    assert [drops.side(span(born)) for born in (4, 5, 7, 8)] == [2, 1, 1, 0]
    assert age_of(drops.aged(span(20), [span(5), span(3, joined=7)])) == 7
    assert rules().side(span(4)) == 0
    assert rules().aged(span(20), [span(5)]) == span(20)


def test_what_joins_or_was_looked_through_is_as_young_as_the_newest_rule() -> None:
    drops = rules(DropRule(5, 0), DropRule(8, 0))
    assert [age_of(each) for each in drops.attached([span(3), span(9)])] == [8, 9]
    assert rules().attached([span(3)]) == (span(3),)
    assert age_of(drops.looked_through(span(3))) == 8


def test_what_is_written_after_a_rule_in_its_own_commit_is_young() -> None:
    drops = rules()
    assert drops.dated(span(9)) == span(9)
    drops.add(RULE, ())
    assert age_of(drops.dated(span(9))) == 10
    assert drops.freeze(NO_DROPS) == DropRules((RULE,))
    drops.rules = ()
    assert drops.freeze(DropRules((RULE,))) is NO_DROPS


def test_a_restore_keeps_the_ages() -> None:
    state = State(bytes(16), 1, lanes=(Lane(5, "a", Backlog(spans=(span(4),))),))
    copies = {span(4).name: (span(30), span(31))}
    assert as_old(state, copies) is copies
    ruled = State(bytes(16), 1, lanes=state.lanes, drops=DropRules((RULE,)))
    assert [age_of(each) for each in as_old(ruled, copies)[span(4).name]] == [4, 4]


def test_it_says_which_and_when() -> None:
    assert why_of(RULE).startswith("by drop rule 10 of 20")
    assert why_of(RULE).endswith("Z")
