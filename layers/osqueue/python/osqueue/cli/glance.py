"""What ``osqueue top`` shows and what its keys do: values and functions, without a terminal, a clock or a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import OsqueueError
from ..model.worker import DRAINING, LOST, RUNNING, WorkerStatus
from .layout import GAP_CELLS, width_of
from .output import cell

QUEUE = "queue"
NAME_CELLS_MIN, NAME_CELLS_MAX = 12, 40
LINES_AROUND = 3  # above and below the queues: the head, the names of the columns, the foot
REQUESTS_PER_SECOND = 1.0  # of the store: what a screen that is always open may ask
COLUMNS = (
    QUEUE,
    "queued",
    "processing",
    "scheduled",
    "failing",
    "failed",
    "oldest_seconds",
    "in_per_second",
    "out_per_second",
    "paused",
)
HEADS = {"oldest_seconds": "oldest", "in_per_second": "in/s", "out_per_second": "out/s"}
KEYS_TOLD = "q quit  s sort  r reverse  / filter  p pause  Enter details"
PLAIN, BOLD, CHOSEN, DIM, ALARM = "", "bold", "reverse", "dim", "red"  # styles of lines

Line = tuple[str, str]  # a text and its style


class Glance(Struct, frozen=True):
    """One queue in the table."""

    queue: str
    paused: bool = False
    queued: int = 0
    processing: int = 0
    scheduled: int = 0
    failing: int = 0
    failed: int = 0
    oldest_seconds: float | None = None  # None: nothing waits
    in_per_second: float | None = None  # jobs enqueued between two looks; None: there was one look
    out_per_second: float | None = None  # jobs that ended, well or not
    error: str = ""  # why it could not be read


class Look(Struct, frozen=True):
    """All queues at one moment, as their statistics or why there are none."""

    at: float  # seconds of a clock that never goes back
    found: Mapping[str, Mapping[str, Any] | OsqueueError]


class TopView(Struct, frozen=True):
    """What is on the screen, and what the keys have chosen so far."""

    rows: tuple[Glance, ...] = ()
    sort: str = "queued"
    reverse: bool = False
    selected: str = ""
    wanted: str = ""  # only queues whose name contains it
    typing: bool = False  # the keys write ``wanted``
    asking: str = ""  # "pause" or "resume": whether to, is the question
    detail: tuple[Line, ...] | None = None  # of the selected queue, in place of the table
    told: str = ""  # an answer or an error, until the next key


class Action(Struct, frozen=True):
    """What a key asks for that the view alone cannot do."""

    name: str  # quit, pause, resume, detail, look
    queue: str = ""


# ── Numbers ──────────────────────────────────────────────────────────────────
def glances(before: Look | None, now: Look) -> tuple[Glance, ...]:
    """A row for each queue; with rates where both looks read it."""
    return tuple(_glance(name, before, now) for name in now.found)


def _glance(name: str, before: Look | None, now: Look) -> Glance:
    found = now.found[name]
    if isinstance(found, OsqueueError):
        return Glance(name, error=f"{found.code}: {found.message}")
    earlier = None if before is None else before.found.get(name)
    arrived = left = None
    if before is not None and now.at > before.at and isinstance(earlier, Mapping):
        seconds = now.at - before.at
        arrived = _rate(earlier, found, seconds, ("enqueued",))
        left = _rate(earlier, found, seconds, ("completed", "failed", "cancelled"))
    numbers = {each: found[each] for each in ("paused", *COLUMNS[1:7])}
    return Glance(name, in_per_second=arrived, out_per_second=left, **numbers)


def _rate(
    earlier: Mapping[str, Any], now: Mapping[str, Any], seconds: float, names: Sequence[str]
) -> float | None:
    """How often a second; None where the counters began anew, as after a restore."""
    grown = sum(now["counters"][name] - earlier["counters"][name] for name in names)
    return grown / seconds if grown >= 0 else None


def pause_after(look: Look, every: float) -> float:
    """Seconds until the next look: the more heads it has to read, the later."""
    heads = sum(found["shards"] + 1 if isinstance(found, Mapping) else 1 for found in look.found.values())
    return pause_after_requests(1 + heads, every)


def pause_after_requests(requests: int, every: float) -> float:
    """The same, after so many requests."""
    return max(every, requests / REQUESTS_PER_SECOND)


# ── Order and selection ──────────────────────────────────────────────────────
def shown(view: TopView) -> list[Glance]:
    """The queues that pass the filter, in order: names from a to z, numbers from the greatest down."""
    return in_order((row for row in view.rows if view.wanted in row.queue), view.sort, view.reverse)


def in_order(rows: Iterable[Glance], sort: str, reverse: bool) -> list[Glance]:
    """Sorted by a column, equals by name; what has no value is last, whichever way."""
    by_name = sorted(rows, key=lambda row: row.queue)
    if sort == QUEUE:
        return by_name[::-1] if reverse else by_name
    known = [row for row in by_name if getattr(row, sort) is not None and not row.error]
    known.sort(key=lambda row: getattr(row, sort), reverse=not reverse)
    return known + [row for row in by_name if getattr(row, sort) is None or row.error]


def selected(view: TopView) -> Glance | None:
    """The chosen queue; the first where that one is not shown."""
    rows = shown(view)
    return next((row for row in rows if row.queue == view.selected), rows[0] if rows else None)


# ── Keys ─────────────────────────────────────────────────────────────────────
def keys_of(text: str) -> list[str]:
    """What a terminal sent, as keys: names for those that have one, else the character."""
    keys: list[str] = []
    while text:
        if text[:2] in ("\x1b[", "\x1bO"):
            end = next((at for at in range(2, len(text)) if text[at].isalpha() or text[at] == "~"), len(text))
            keys.append(_ESCAPED.get(text[2 : end + 1], ""))
            text = text[end + 1 :]
        else:
            keys.append(_NAMED.get(text[0], text[0] if text[0].isprintable() else ""))
            text = text[1:]
    return [key for key in keys if key]


_ESCAPED = {"A": "up", "B": "down", "C": "right", "D": "left"}
_NAMED = {"\r": "enter", "\n": "enter", "\x7f": "delete", "\b": "delete", "\x1b": "escape"}


def pressed(view: TopView, key: str) -> tuple[TopView, Action | None]:
    """The view after a key, and what is to be done."""
    if view.typing:
        return _typed(view, key), None
    chosen = selected(view)
    if view.asking:
        action = Action(view.asking, view.selected) if key == "y" else None
        return replace(view, asking="", told=""), action
    view = replace(view, told="")
    match key:
        case "q":
            return view, Action("quit")
        case "escape":
            return replace(view, detail=None, wanted="" if view.detail is None else view.wanted), (
                None if view.detail is None else Action("look")
            )
        case "p" if chosen is not None and not chosen.error:
            asking = "resume" if chosen.paused else "pause"
            return replace(view, asking=asking, selected=chosen.queue), None
    if view.detail is not None:
        return (replace(view, detail=None), Action("look")) if key in ("enter", "delete") else (view, None)
    match key:
        case "s" | "right":
            return replace(view, sort=_beside(view.sort, 1)), None
        case "left":
            return replace(view, sort=_beside(view.sort, -1)), None
        case "r":
            return replace(view, reverse=not view.reverse), None
        case "/":
            return replace(view, typing=True, wanted=""), None
        case "up" | "k":
            return _moved(view, -1), None
        case "down" | "j":
            return _moved(view, 1), None
        case "enter" if chosen is not None:
            opened = replace(view, selected=chosen.queue, detail=(("…", DIM),))
            return opened, Action("detail", chosen.queue)
    return view, None


def _typed(view: TopView, key: str) -> TopView:
    match key:
        case "enter":
            return replace(view, typing=False)
        case "escape":
            return replace(view, typing=False, wanted="")
        case "delete":
            return replace(view, wanted=view.wanted[:-1])
    return replace(view, wanted=view.wanted + key) if len(key) == 1 else view


def _beside(sort: str, by: int) -> str:
    return COLUMNS[(COLUMNS.index(sort) + by) % len(COLUMNS)]


def _moved(view: TopView, by: int) -> TopView:
    rows, chosen = shown(view), selected(view)
    if chosen is None:
        return view
    at = min(max(0, rows.index(chosen) + by), len(rows) - 1)
    return replace(view, selected=rows[at].queue)


# ── One queue ────────────────────────────────────────────────────────────────
def detail_of(
    name: str, flow: Mapping[str, Any], jobs: Sequence[Any], more: bool, workers: Sequence[WorkerStatus]
) -> tuple[Line, ...]:
    """The lines on one queue: its limits, its kinds, who holds running jobs, and who else works on it."""
    most = flow["max_running"]
    about = f"{flow['running']:,} running" + (f" of {most:,}" if most is not None else "")
    lines: list[Line] = [(f"{cell(name)}: {about}{', paused' if flow['paused'] else ''}", BOLD)]
    if flow["rate"] is not None:
        lines.append((f"rate: {_rate_told(flow['rate'])}", PLAIN))
    if flow["limiter"] is not None:
        limiter = flow["limiter"]
        lines.append((f"limiter {cell(limiter['name'])}: {limiter['lent']:,} slots lent", PLAIN))
    groups = ", ".join(f"{count:,} {state}" for state, count in flow["groups"].items() if count)
    if groups:
        lines.append((f"groups: {groups}", PLAIN))
    lines += [("", PLAIN), ("kinds", BOLD)]
    lines += [(_kind_told(kind, use), PLAIN) for kind, use in flow["kinds"].items()] or [("-", DIM)]
    of = f" (of the first {len(jobs):,} jobs)" if more else ""
    lines += [("", PLAIN), (f"workers{of}", BOLD)]
    return (*lines, *(_workers_told(jobs, workers) or [("-", DIM)]))


def _workers_told(jobs: Sequence[Any], workers: Sequence[WorkerStatus]) -> list[Line]:
    """Those that are lost, then those with jobs, the most first, then those without."""
    held: dict[str, list[Any]] = {}
    for job in jobs:
        held.setdefault(job.worker or "", []).append(job)
    lines = [
        (f"{cell(each.name)}: lost, heard of last at {cell(each.seen)}", ALARM)
        for each in workers
        if each.state == LOST
    ]
    draining = {each.name for each in workers if each.state == DRAINING}
    for name, theirs in sorted(held.items(), key=lambda each: (-len(each[1]), each[0])):
        since = min(job.started_at for job in theirs)
        kinds = ", ".join(sorted({cell(job.kind) for job in theirs}))
        told = ", draining" if name in draining else ""
        lines.append((f"{cell(name)}: {len(theirs):,} since {cell(since)}, kinds {kinds}{told}", PLAIN))
    for each in workers:
        if each.state in (RUNNING, DRAINING) and each.name not in held:
            told = "draining" if each.state == DRAINING else "idle"
            lines.append((f"{cell(each.name)}: {told}, of {each.concurrency:,} at once", DIM))
    return lines


def _rate_told(rate: Mapping[str, Any]) -> str:
    following = rate["next_at"]
    told = f"{rate['starts']:,} in {rate['period']:g} s, {rate['left']:,} may start now"
    return told if following is None else f"{told}, the next at {cell(following)}"


def _kind_told(kind: str, use: Mapping[str, Any]) -> str:
    most, rate = use["max_running"], use["rate"]
    told = f"{cell(kind)}: {use['running']:,} running" + (f" of {most:,}" if most is not None else "")
    if rate is not None:
        told += f", {_rate_told(rate)}"
    return told + (", paused" if use["paused"] else "")


# ── The screen ───────────────────────────────────────────────────────────────
def lines_of(view: TopView, address: str, every: float, width: int, height: int) -> list[Line]:
    """What fits a screen of so many cells and lines, its foot on the last."""
    head = f"osqueue top {cell(address)}  {len(view.rows):,} queues, every {every:g} s"
    body = _table(view, width, max(1, height - LINES_AROUND)) if view.detail is None else [*view.detail]
    body = [(head, DIM), *body][: max(1, height - 1)]
    body += [("", PLAIN)] * (height - 1 - len(body))
    return [*body, _foot(view)]


def _foot(view: TopView) -> Line:
    if view.asking:
        return f"{view.asking} {cell(view.selected)}? y/n", BOLD
    if view.typing:
        return f"only queues with: {cell(view.wanted) if view.wanted else ''}_", BOLD
    if view.told:
        return cell(view.told), BOLD
    more = f"  only queues with: {cell(view.wanted)}" if view.wanted else ""
    return ("Esc back  p pause  q quit" if view.detail is not None else KEYS_TOLD + more), DIM


def _table(view: TopView, width: int, room: int) -> list[Line]:
    rows, chosen = shown(view), selected(view)
    cells = [[_cell(row, name) for name in COLUMNS] for row in rows]
    heads = [HEADS.get(name, name) for name in COLUMNS]
    heads[COLUMNS.index(view.sort)] += "^" if view.reverse != (view.sort == QUEUE) else "v"
    widths = [max(width_of(row[at]) for row in (heads, *cells)) for at in range(len(COLUMNS))]
    beside = sum(widths[1:]) + GAP_CELLS * (len(COLUMNS) - 1)
    widths[0] = min(width, max(NAME_CELLS_MIN, min(widths[0], NAME_CELLS_MAX, width - beside)))
    kept = len(COLUMNS)
    while kept > 1 and sum(widths[:kept]) + GAP_CELLS * (kept - 1) > width:
        kept -= 1
    lines = [(_line(heads[:kept], widths), BOLD)]
    at = 0 if chosen is None else rows.index(chosen)
    first = max(0, min(at - room // 2, len(rows) - room))
    for row, texts in list(zip(rows, cells, strict=True))[first : first + room]:
        text = f"{_fit(texts[0], widths[0])}  {cell(row.error)}" if row.error else _line(texts[:kept], widths)
        plain = ALARM if row.error else PLAIN
        lines.append((text, CHOSEN if row is chosen else plain))
    return lines if rows else [*lines, ("no queues", DIM)]


def _cell(row: Glance, name: str) -> str:
    value = getattr(row, name)
    if name == "oldest_seconds" and value is not None:
        return age(value)
    if name == "paused":
        return "paused" if value else ""
    return f"{value:,.1f}" if isinstance(value, float) else cell(value)


def age(seconds: float) -> str:
    """A time as people say it, in its two greatest units."""
    whole = int(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{below}"
    return f"{whole}s"


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = texts
    numbers = (" " * (width - width_of(text)) + text for text, width in zip(rest, widths[1:], strict=False))
    return (" " * GAP_CELLS).join((_fit(first, widths[0]), *numbers))


def _fit(text: str, width: int) -> str:
    """The text in exactly so many cells, an ellipsis where it is cut."""
    if width_of(text) <= width:
        return text + " " * (width - width_of(text))
    while width_of(text) > width - 1:
        text = text[:-1]
    return text + "…" + " " * (width - 1 - width_of(text))
