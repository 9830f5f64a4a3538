"""The page as a whole: what it says, that it holds together, and that nothing gets out of it or into it."""

from __future__ import annotations

import base64
import hashlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from osqueue.pipeline.report.collect import sections_of
from osqueue.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Bin,
    Error,
    Point,
    Quantiles,
    QueueSection,
    ReviewPage,
    Totals,
    WeekHour,
    WorkerLoad,
    WorkerSection,
    step_for,
)
from osqueue.pipeline.report.page import page
from osqueue.pipeline.report.style import SCRIPT, STYLE

OCTOBER_MS = 1_790_812_800_000  # Thursday, 1 October 2026, midnight
HOSTILE = "\"'></title></svg></style><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\x00\x1b[31m\u202eevil"

WAIT = Quantiles(800, 4_500, 90_000, 100_000)
RUN = Quantiles(3_000, 21_600, 51_000, 339_000)


def a_queue(name: str = "emails", error: str = "connection reset", worker: str = "worker-1") -> QueueSection:
    """Two hours of a queue that was busy in the first and late in the second."""
    return QueueSection(
        name,
        Totals(1_236, 1_101, 7, 3, 1_160, 41, 11, 1_200, 1_150, WAIT, RUN, RUN),
        points=(
            Point(OCTOBER_MS, 1_000, 600, 2, 30, 1, 700, 700, 407, WAIT),
            Point(OCTOBER_MS + HOUR_MS, 236, 501, 5, 11, 10, 500, 450, 512, WAIT),
        ),
        waits=(Bin(0, 1, 10), Bin(10, 14.7, 1_140), Bin(68_000, 100_000, 50)),
        runs=(Bin(1_000, 1_470, 1_000), Bin(215_000, 316_000, 101)),
        errors=(
            Error("0badc0de", "ConnectionError", error, 40, 6, OCTOBER_MS, OCTOBER_MS + HOUR_MS),
            Error("feedbeef", "stalled", "no word", 11, 1, OCTOBER_MS, OCTOBER_MS + HOUR_MS),
        ),
        errors_other=8,
        workers=(
            WorkerSection(
                worker,
                1_160,
                59,
                2 * HOUR_MS,
                0.75,
                (WorkerLoad(OCTOBER_MS, 1.5), WorkerLoad(OCTOBER_MS + HOUR_MS, 0.5)),
            ),
        ),
        workers_other=2,
        week=(WeekHour(3, 0, 1, 1_000, 700, 700), WeekHour(3, 1, 1, 236, 500, 450)),
    )


def a_report(
    *queues: QueueSection, span_ms: int = DAY_MS, step_ms: int = HOUR_MS, title: str = "Operations review"
) -> ReviewPage:
    totals = queues[0].totals if queues else Totals()
    error = queues[0].errors[0] if queues and queues[0].errors else None
    return ReviewPage(
        OCTOBER_MS, OCTOBER_MS + span_ms, step_ms, MINUTE_MS, totals, queues, title=title, error=error
    )


def parsed(text: str) -> ET.Element:
    """The page, by a parser that forgives nothing. The element tree has no scripts run and no entities beyond XML's."""
    return ET.fromstring(text)  # noqa: S314 - what is parsed was made here


def said(element: ET.Element) -> str:
    """All text, with single spaces."""
    return " ".join("".join(element.itertext()).split())


def under(page_: ET.Element, heading: str) -> ET.Element:
    """The figure with a heading."""
    return next(figure for figure in page_.iter("figure") if said(figure.find(".//h4")) == heading)  # type: ignore[arg-type]


def cells(figure: ET.Element) -> list[list[str]]:
    """The rows of the figure's table."""
    return [[said(cell) for cell in row] for row in figure.findall(".//tbody/tr")]


SHAPES = {
    "nothing at all": a_report(),
    "a queue without jobs": a_report(QueueSection("emails")),
    "a day": a_report(a_queue()),
    "several queues": a_report(a_queue(), a_queue("thumbnails"), QueueSection("idle")),
    "a single hour": a_report(a_queue(), span_ms=HOUR_MS),
    "half a minute": a_report(a_queue(), span_ms=27_000, step_ms=1_000),
    "a quarter": a_report(a_queue(), span_ms=92 * DAY_MS, step_ms=DAY_MS // 2),
    "one huge spike": a_report(
        QueueSection("emails", points=(Point(OCTOBER_MS, 1), Point(OCTOBER_MS + HOUR_MS, 10**9, depth=10**9)))
    ),
    "a queue that was not measured": replace(a_report(a_queue()), unmeasured=((HOSTILE, OCTOBER_MS),)),
    "hostile names": a_report(a_queue(HOSTILE, HOSTILE, HOSTILE), a_queue(HOSTILE), title=HOSTILE),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def text(request: pytest.FixtureRequest) -> str:
    return page(request.param)


def test_the_page_is_well_formed(text: str) -> None:
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert {element.tag for element in parsed(text)} == {"head", "body"}


def test_the_page_loads_nothing(text: str) -> None:
    assert not re.search(r"(?i)https?:|//[a-z]|url\(|@import", text.replace(SCRIPT, ""))
    for element in parsed(text).iter():
        assert element.tag not in {"link", "img", "iframe", "object", "embed", "image", "use", "a:href"}
        assert "src" not in element.attrib
        assert all(not name.startswith("on") for name in element.attrib)
        assert element.get("href", "#").startswith("#")


def test_only_the_script_that_belongs_there_may_run(text: str) -> None:
    (script,) = parsed(text).iter("script")
    (policy,) = (meta for meta in parsed(text).iter("meta") if meta.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256((script.text or "").encode()).digest()).decode()
    assert "default-src 'none'" in policy.attrib["content"]
    assert f"script-src 'sha256-{digest}'" in policy.attrib["content"]


def test_every_drawing_has_a_title_and_a_description_of_its_own(text: str) -> None:
    root = parsed(text)
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    texts = {element.get("id"): said(element) for element in root.iter()}
    for drawing in root.iter("svg"):
        if drawing.get("role") == "img":
            title, description = drawing.attrib["aria-labelledby"].split()
            assert texts[title], "a drawing without a title"
            assert texts[description], f"{texts[title]} without a description"
        else:
            assert drawing.get("aria-hidden") == "true"


def test_every_plot_has_its_numbers_in_a_table(text: str) -> None:
    for figure in parsed(text).iter("figure"):
        if figure.find(".//svg") is not None:
            assert cells(figure)


def test_no_number_goes_astray(text: str) -> None:
    assert not re.search(r"\b(nan|inf|None|Infinity)\b", said(parsed(text).find("body")))  # type: ignore[arg-type]
    for element in parsed(text).iter():
        for name in ("d", "x", "y", "width", "height", "x1", "x2", "y1", "y2"):
            assert not re.search("nan|inf|e[+-]", element.get(name, ""))


def shares(root: ET.Element) -> Iterator[float]:
    for element in root.iter():
        for name in ("x", "x1", "x2"):
            if element.get(name, "").endswith("%"):
                yield float(element.attrib[name].rstrip("%"))


def test_nothing_is_drawn_beside_the_paper(text: str) -> None:
    assert all(0 <= share <= 100 for share in shares(parsed(text)))
    for element in parsed(text).iter("rect"):
        # A column that is pointed at has its size from the style.
        assert float(element.get("width", "1").rstrip("%")) >= 0
        assert float(element.get("height", "1")) > 0


def test_hostile_names_and_errors_stay_text() -> None:
    text = page(a_report(a_queue(HOSTILE, HOSTILE, HOSTILE), title=HOSTILE))
    root = parsed(text)
    assert len(list(root.iter("script"))) == 1
    assert not list(root.iter("img"))
    assert "\x00" not in text
    assert "\u202e" not in text
    shown = HOSTILE.replace("\x00", "\\u0000").replace("\x1b", "\\u001b").replace("\u202e", "\\u202e")
    assert said(root.find(".//h1")) == shown  # type: ignore[arg-type]
    assert said(root.find(".//h2")) == shown  # type: ignore[arg-type]
    assert shown in said(under(root, "Top errors"))
    assert shown in said(under(root, "Workers"))


def test_a_long_error_is_cut() -> None:
    entry = said(under(parsed(page(a_report(a_queue(error="x" * 10_000)))), "Top errors"))
    assert "x" * 200 in entry
    assert len(entry) < 1_000


def test_the_answer_comes_first() -> None:
    root = parsed(page(a_report(a_queue())))
    answer = next(said(element) for element in root.iter("p") if element.get("class") == "answer")
    assert answer == (
        "95.8 % of 1,200 jobs started within 1 min; 95 % within 4.5 s. "
        "The backlog was deepest: 512 jobs, 01:00; 0 in the last hour. "
        "7 jobs failed for good (0.6 % of those that ended); the most frequent error is ConnectionError, 40 times."
    )


def test_the_headline_numbers_are_those_of_the_data() -> None:
    tiles = next(element for element in parsed(page(a_report(a_queue()))).iter("dl"))
    told = {said(tile[0]): [said(each) for each in tile[1]] for tile in tiles}
    assert told == {
        "arrived": ["1,236", "51.5 an hour"],
        "completed": ["1,101", "45.9 an hour"],
        "failed": ["7", "0.6 % of those that ended; 3 cancelled"],
        "started within 1 min": ["95.8 %", "50 late"],
        "p95 wait": ["4.5 s", "p50 800 ms, p99 1 min 30 s"],
        "p95 run": ["21.6 s", "p50 3 s, p99 51 s"],
        "p95 end to end": ["21.6 s", "p50 3 s, p99 51 s"],
        "attempts": ["1,160", "41 retried, 11 stalled"],
    }


@pytest.mark.parametrize(
    ("heading", "rows"),
    [
        ("Arrivals and completions", [["00:00", "1,000", "600"], ["01:00", "236", "501"]]),
        ("Depth", [["00:00", "407"], ["01:00", "512"]]),
        (
            "Wait before the start",
            [
                ["00:00", "800 ms", "4.5 s", "1 min 30 s", "1 min 40 s", "700", "0"],
                ["01:00", "800 ms", "4.5 s", "1 min 30 s", "1 min 40 s", "500", "50"],
            ],
        ),
        ("Retries, stalls and failed jobs", [["00:00", "30", "1", "2"], ["01:00", "11", "10", "5"]]),
        (
            "Waits",
            [
                ["under 1 ms", "10", "0.8 %"],
                ["10 ms to 14.7 ms", "1,140", "95.8 %"],
                ["1 min 8 s to 1 min 40 s", "50", "100 %"],
            ],
        ),
        ("Workers", [["worker-1", "75.0 %", "0.083", "2 h", "1,160", "59"]]),
        (
            "Worst hours",
            [["01:00", "50", "5", "236", "512", "4.5 s"], ["00:00", "0", "2", "1,000", "407", "4.5 s"]],
        ),
    ],
)
def test_the_table_behind_a_plot_has_the_numbers_of_the_data(heading: str, rows: list[list[str]]) -> None:
    assert cells(under(parsed(page(a_report(a_queue()))), heading)) == rows


@pytest.mark.parametrize("days", [1, 7, 11, 92])
def test_a_page_of_many_busy_queues_is_less_than_a_megabyte(days: int) -> None:
    """However much happens in each step, and to however many workers."""
    span_ms = days * DAY_MS
    step_ms = step_for(span_ms)
    steps = range(OCTOBER_MS, OCTOBER_MS + span_ms, step_ms)
    points = tuple(
        Point(at, *(at // step_ms * 7919 % most for most in (977, 977, 13, 7, 5, 503, 401, 353)), wait=WAIT)
        for at in steps
    )
    loads = tuple(WorkerLoad(at, at // step_ms * 7919 % 101 / 10) for at in steps)
    week = tuple(WeekHour(day, hour, 1, 977, 503, 401 - day * hour) for day in range(7) for hour in range(24))
    queue = a_queue()
    worker = replace(queue.workers[0], load=loads)
    busy = replace(queue, points=points, workers=(worker,) * 12, errors=queue.errors * 5, week=week)
    shown = [replace(busy, name=f"queue-{n}") for n in range(sections_of(len(steps)))]
    report = replace(a_report(*shown, span_ms=span_ms, step_ms=step_ms), others=(("idle", Totals()),) * 200)
    assert len(page(report).encode()) < 1_000_000


def test_queues_without_a_section_are_in_the_table_of_all() -> None:
    told = parsed(page(replace(a_report(a_queue(), a_queue("b")), others=(("quiet", Totals(enqueued=9)),))))
    (overview,) = (each for each in told.iter("section") if each.get("id") == "queues")
    assert [[said(cell) for cell in row][:2] for row in overview.findall(".//tbody/tr")] == [
        ["emails", "1,236"],
        ["b", "1,236"],
        ["quiet", "9"],
    ]
    assert "1 queue with less trouble" in said(told)


def test_what_is_pointed_at_tells_the_same_numbers() -> None:
    figure = under(parsed(page(a_report(a_queue()))), "Arrivals and completions")
    told = [said(step[0]) for hits in figure.iter("svg") if hits.get("class") == "hits" for step in hits]
    assert told == ["00:00: arrived 1,000, completed 600", "01:00: arrived 236, completed 501"]


def test_the_heat_map_has_every_hour_of_the_week_and_tells_which_were_seen() -> None:
    figure = under(parsed(page(a_report(a_queue()))), "Busy hours")
    rects = list(figure.iter("rect"))
    assert len(rects) == 7 * 24
    seen = {said(element): element.get("class") for element in rects if len(element)}
    assert seen == {"Thu 00:00: 1k arrive": "cell heat-8", "Thu 01:00: 236 arrive": "cell heat-2"}
    assert cells(figure)[3][:4] == ["Thu", "1k", "236", "–"]


def test_a_bar_past_the_target_stands_out() -> None:
    figure = under(parsed(page(a_report(a_queue()))), "Waits")
    kinds = [element.get("class") for element in figure.iter("rect")]
    assert kinds == ["bar", "bar", "late-bar"]


def test_errors_come_with_count_share_fingerprint_and_example() -> None:
    entries = [said(entry) for entry in under(parsed(page(a_report(a_queue()))), "Top errors").iter("li")]
    assert entries == [
        (
            "40 67.8 % ConnectionError 0badc0deconnection reset6 jobs failed for good by it; "
            "first 00:00, last 01:00"
        ),
        "11 18.6 % stalled feedbeefno word1 job failed for good by it; first 00:00, last 01:00",
        "8 more, of other kinds",
    ]


def test_several_queues_are_compared_and_each_has_its_section() -> None:
    root = parsed(page(a_report(a_queue(), a_queue("thumbnails"), QueueSection("idle"))))
    overview = next(section for section in root.iter("section") if section.get("id") == "queues")
    assert [row[:2] for row in cells(overview)] == [
        ["emails", "1,236"],
        ["thumbnails", "1,236"],
        ["idle", "0"],
    ]
    assert [said(heading) for heading in root.iter("h2")] == ["All queues", "emails", "thumbnails", "idle"]
    targets = {element.get("id") for element in root.iter()}
    assert {link.attrib["href"].lstrip("#") for link in root.iter("a")} <= targets


def test_a_single_queue_is_not_compared_with_itself() -> None:
    assert [said(heading) for heading in parsed(page(a_report(a_queue()))).iter("h2")] == ["emails"]


def test_the_hours_of_the_week_are_left_out_of_a_period_shorter_than_a_day() -> None:
    headings = [said(heading) for heading in parsed(page(a_report(a_queue(), span_ms=HOUR_MS))).iter("h4")]
    assert "Workers" in headings
    assert "Busy hours" not in headings


def test_the_same_data_make_the_same_page() -> None:
    assert page(a_report(a_queue())) == page(a_report(a_queue()))


def test_a_quarter_of_twenty_queues_can_still_be_sent_by_mail() -> None:
    points = tuple(
        Point(OCTOBER_MS + n * DAY_MS // 2, 9_000 + n, 8_999, 3, 4, 5, 8_000, 7_000, 500, WAIT)
        for n in range(184)
    )
    queues = [QueueSection(f"queue-{n}", a_queue().totals, points) for n in range(20)]
    text = page(a_report(*queues, span_ms=92 * DAY_MS, step_ms=DAY_MS // 2))
    assert len(text.encode()) < 5_000_000


@pytest.mark.parametrize(
    "mode", [STYLE.partition("@media")[0], STYLE.partition("@media")[2]], ids=["light", "dark"]
)
def test_text_can_be_told_from_the_paper(mode: str) -> None:
    """By the contrast that WCAG asks of text: 4.5 to 1."""
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", mode.partition("* {")[0]))
    for name in ("ink", "soft", "link", "good", "bad"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("completed", "depth-line", "p50", "p95", "p99", "bar", "late", "failed", "load-line"):
        assert contrast(colours[name], colours["paper"]) >= 3, name


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
