"""The parts of the pages that are made from tables of the code: ``python -m docs.generate`` writes them anew.

A part stands between ``<!-- made from TABLE -->`` and ``<!-- end -->``. A test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from osqueue import Unique, limits
from osqueue.contract.functions import FUNCTIONS, FunctionSpec
from osqueue.contract.operations import ROUTES
from osqueue.contract.route import Route
from osqueue.core.arrows import ARROWS, LEAVING
from osqueue.model.fields import DescribedField, described_fields
from osqueue.model.job import Attempt, Job
from osqueue.model.job_options import OPTIONS, START_BY
from osqueue.model.settings import DEFAULTS, LIFTED, SETTINGS
from osqueue.pipeline import tables
from osqueue.pipeline.tables import TableColumn
from osqueue.pipeline.view_columns import sql_type
from osqueue.spark import columns

FOLDER = Path(__file__).parent
PART = re.compile(r"(<!-- made from (?P<table>\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def diagram() -> str:
    """A job's life, as a drawing."""
    labels: dict[tuple[str, str], list[str]] = {}
    for arrow in ARROWS:
        found = labels.setdefault((arrow.origin, arrow.target), [])
        if arrow.what not in found:
            found.append(arrow.what)
    lines = [
        f"    {origin or '[*]'} --> {target}: {', '.join(what)}" for (origin, target), what in labels.items()
    ]
    lines += [f"    {state} --> [*]: {when.replace('`', '')}" for state, when in LEAVING.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def arrows() -> str:
    """The same, as a table."""
    rows: dict[tuple[str, str], list[str]] = {}
    for arrow in ARROWS:
        when = f"{arrow.what}: {arrow.when}" if arrow.when else arrow.what
        rows.setdefault((arrow.target, when), []).append(f"`{arrow.origin}`" if arrow.origin else "(new)")
    cells = [(", ".join(origins), f"`{target}`", when) for (target, when), origins in rows.items()]
    cells += [
        (f"`{state}`", "gone", f"{when}; the archive keeps the record") for state, when in LEAVING.items()
    ]
    return table(("from", "to", "when"), cells)


def operations() -> str:
    """The operations of the API."""
    return table(
        ("operation", "request", "body", "answer", "what it does", "function", "may be repeated"),
        [_row(route) for route in ROUTES],
    )


def _row(route: Route) -> tuple[str, ...]:
    query = "&".join(f"{each.name}=" for each in route.query)
    return (
        f"`{route.name}`",
        f"`{route.method} {route.path}{'?' + query if query else ''}`",
        _names(route.request),
        _names(route.answer),
        route.what,
        route.function,
        route.repeat.value,
    )


def _names(type: Any) -> str:
    """The schemas of a body, as ``openapi.json`` names them."""
    if type is None or type is dict:
        return ""
    if type == dict[str, Any]:
        return "`Statistics`"
    return ", ".join(
        f"`{each.__name__}`" for each in (get_args(type) if isinstance(type, UnionType) else (type,))
    )


def functions() -> str:
    """The Lambda functions."""
    return table(("function", "timeout", "memory", ""), [_function(each) for each in FUNCTIONS])


def _function(each: FunctionSpec) -> tuple[str, ...]:
    minutes = each.schedule_minutes
    often = "" if minutes is None else f", every {'minute' if minutes == 1 else f'{minutes} minutes'}"
    return each.name, f"{each.timeout_s} s", f"{each.memory_mb:,} MB", each.what + often


def job_options() -> str:
    """What may be said of a job beside its payload."""
    rows = [
        (f"`{each.name}`", each.about.description or "", _range(each), _default(each.default))
        for each in OPTIONS.values()
    ]
    return table(("option", "", "what", "default"), rows)


def job() -> str:
    """What callers see of a job."""
    own = {**OPTIONS, **described_fields(Job)}
    rows = [
        (f"`{name}`", START_BY if name == "start_by" else own[name].about.description or "")
        for name in Job.__struct_fields__
    ]
    return table(("`Job`", ""), rows)


def attempt() -> str:
    """What they see of an attempt."""
    rows = [(f"`{each.name}`", each.about.description or "") for each in described_fields(Attempt).values()]
    return table(("`Attempt`", ""), rows)


def settings() -> str:
    """What an operator may change while a queue runs."""
    rows = [
        (f"`{each.name}`", each.about.description or "", _range(each), _default(DEFAULTS.get(each.name)))
        for each in SETTINGS.values()
    ]
    return table(("setting", "", "what", "default"), rows)


def setting_options() -> str:
    """The same, as options of the command line."""
    rows = []
    for each in SETTINGS.values():
        if each.name in ("kinds", "groups", "consumers"):  # these have options, or commands, of their own
            continue
        name = f"--{each.name.replace('_', '-')}"
        written = {
            float: f"`{name} DURATION`",
            int: f"`{name} N`",
            datetime: f"`{name} TIME`",
            tuple: f"`{name} JOBS/TIME`, `--no-{name[2:]}`",
            bool: f"`{name}/--no-{name[2:]}`",
            str: f"`{name} NAME`, `--no-{name[2:]}`" if name[2:] in LIFTED else f"`{name} WORD`",
        }
        rows.append((written[each.type], (each.about.description or "").rstrip(".")))
    return table(("option", ""), rows)


def _columns(*columns: TableColumn) -> str:
    return table(
        ("column", "type", ""),
        [(f"`{each.name}`", f"`{sql_type(each.type)}`", each.comment) for each in columns],
    )


def table_jobs() -> str:
    """The columns of the pipeline's table of jobs."""
    return _columns(*tables.JOBS.columns)


def table_attempts() -> str:
    """The same of attempts."""
    return _columns(*tables.ATTEMPTS.columns)


def table_metrics() -> str:
    """The same of metrics by hour and day."""
    return _columns(*tables.METRICS_HOURLY.columns)


def table_workers() -> str:
    """The same of workers."""
    return _columns(*tables.METRICS_WORKERS.columns)


def table_errors() -> str:
    """The same of errors."""
    return _columns(*tables.METRICS_ERRORS.columns)


def table_partitions() -> str:
    """The columns that are folders."""
    return _columns(*tables.PARTITIONS)


def source_columns() -> str:
    """What the Spark data source has of live and of finished jobs."""
    rows = [
        (
            f"`{each.name}`",
            f"`{sql_type(each.type)}`",
            each.comment,
            "yes" if each.live else "–",
            "yes" if each.finished else "–",
        )
        for each in columns.COLUMNS
    ]
    return table(("column", "type", "", "live", "finished"), rows)


def _range(field: DescribedField) -> str:
    """What values a field takes."""
    about = field.about
    if field.type is bool:
        return "True or False"
    if field.type is tuple:
        return (
            f"a pair: 1 to {limits.RATE_STARTS_MAX:,} jobs, 0.001 to {limits.RATE_MS_MAX / 1000:,.0f} seconds"
        )
    if field.type is datetime:
        return "an aware datetime, or Unix seconds"
    if field.name == "kinds":
        return f"a mapping of up to {about.max_length} kinds to `Kind(…)`, or to None"
    if field.name == "consumers":
        return f"a mapping of up to {about.max_length} names to [`Consumer(…)`](consumers.md), or to None"
    if field.type is Unique:
        return "a [`Unique`](unique-jobs.md), or a mapping of its fields"
    if field.type is list:
        most = f"{limits.FOLLOW_UPS_BYTES_MAX:,} bytes together"
        return f"up to {about.max_length} [`Next(…)`](follow-ups.md), or mappings of their fields, {most}"
    if field.name == "batch":
        return "the id of a [batch](follow-ups.md#batches)"
    if field.name == "groups":
        return (
            f"a mapping of up to {about.max_length:,} groups to `Group(paused=…, running=…, rate=…, burst=…)`"
        )
    if about.pattern is not None and field.type is str:
        return " or ".join(f"`{word}`" for word in about.pattern.strip("^$()").split("|"))
    if field.type is dict:
        return f"a mapping of up to {about.max_length} names to texts, {limits.HEADERS_BYTES_MAX:,} bytes together"
    if field.type is str:
        return f"{about.min_length or 0} to {about.max_length:,} printable characters"
    if field.type is int:
        return f"a whole number, {about.ge} to {about.le:,}"
    return f"seconds, {about.ge:g} to {about.le:,.0f}"


def _default(value: Any) -> str:
    if value in (None, {}):
        return "none"
    return str(value) if isinstance(value, bool | str) else f"{value:.15g}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Rows in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        *(diagram, arrows, operations, functions, job_options, job, attempt, settings, setting_options),
        *(table_jobs, table_attempts, table_metrics, table_workers, table_errors, table_partitions),
        source_columns,
    )
}


def page(text: str) -> str:
    """A page with its parts made anew. Raises KeyError for a table that there is not."""
    return PART.sub(lambda part: f"{part[1]}\n{TABLES[part['table']]()}\n\n{part[3]}", text)


if __name__ == "__main__":
    for path in sorted(FOLDER.rglob("*.md")):
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
