"""What commands have in common: the address, durations and moments as people write them, --json, --timeout."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args

import click
import msgspec
from msgspec import UNSET

from .. import limits
from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..errors import NotFound, OsqueueError, Rejected
from ..model.fields import DescribedField, described_fields
from ..model.job_options import OPTIONS
from ..model.unique import OnDuplicate, Unique, While
from ..objects.archive import parts
from ..objects.layout import REGISTER, registered
from ..queue.blocking import Queue
from ..stores.address import is_remote, open_store
from ..stores.base import Get, Missing
from ..stores.counting import CountingStore
from .output import Output
from .telling import events_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..client.transports.base import Transport
    from ..events import Sink

ADDRESS_VARIABLE = "OSQUEUE_ADDRESS"
ADDRESSES = ("file://", "s3://", "https://", "http://", "lambda://")
COMPLETION_SECONDS = 3.0  # a shell waits no longer for names of queues
NEAR_NAMES_MAX = 5  # queues named in a "no such queue"

F = TypeVar("F", bound=Callable[..., Any])


# ── Values ───────────────────────────────────────────────────────────────────
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)")
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str | float) -> float:
    """Seconds, or a number with a unit: 30, 1.5s, 250ms, 5m, 2h, 7d."""
    if isinstance(value, int | float):
        return float(value)
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no duration. Write seconds, or 250ms, 30s, 5m, 2h, 7d.")
    return float(found[1]) * _UNITS[found[2]]


def rate(value: str | tuple[int, float]) -> tuple[int, float]:
    """So many jobs in a time: 100/60s, 10/s."""
    if isinstance(value, tuple):
        return value
    count, sign, period = value.partition("/")
    if not sign or not count.strip().isdecimal():
        raise click.BadParameter(f"{value!r} is no rate. Write 100/60s for 100 jobs a minute, or 10/s.")
    period = period.strip()
    return int(count), duration(f"1{period}" if period and period in _UNITS else period)


def moment(text: str) -> datetime | float:
    """An ISO 8601 time with its zone, or Unix seconds."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time. Write 2030-01-31T08:00:00Z, or Unix seconds."
        ) from None
    if found.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone. Write {text}Z for UTC, or an offset.")
    return found


def json(text: str | bytes) -> msgspec.Raw:
    """A value in JSON, checked and kept as it was written."""
    data = os.fsencode(text)
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise click.BadParameter(f"it is not JSON ({error}). Text needs its quotes: '\"hello\"'.") from None
    return msgspec.Raw(data.strip())


def as_text(value: str, field: str) -> str:
    """An argument that stores and keys are named by. Raises Rejected where its bytes are no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Rejected(f"{field}: it is not UTF-8. Use another name.", field=field) from None
    return value


# ── Options of every command ─────────────────────────────────────────────────
def _ask_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).json = True


json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_ask_json,
    help="Print JSON, errors too, also on a terminal.",
)
timeout_option = click.option(
    "--timeout",
    type=duration,
    default=limits.REQUEST_TIMEOUT_S,
    help="How long one request to the queue may try.  [default: 25s]",
)


def store_arguments(queue: bool = True, commits: bool = False) -> Callable[[F], F]:
    """ADDRESS, and QUEUE, and the options that go with them; --events where jobs go from one state to another."""

    def decorate(function: F) -> F:
        function = timeout_option(json_option(function))
        if commits:
            function = events_option(function)
        if queue:
            function = click.argument("queue", shell_complete=complete_queue)(function)
        return click.argument("address", shell_complete=complete_address)(function)

    return decorate


# ── What a shell completes ───────────────────────────────────────────────────
def complete_address(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The forms that an address has."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(each) for each in ADDRESSES if each.startswith(incomplete)]


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the queues at the address before it, or at the environment's; none where it does not answer."""
    from click.shell_completion import CompletionItem

    address = ctx.params.get("address") or os.environ.get(ADDRESS_VARIABLE, "")
    try:
        if is_remote(address):
            from ..client.transports.address import open_transport

            names = [row["queue"] for row in queues_of(open_transport(address), COMPLETION_SECONDS)]
        else:
            names = queues_at(open_at(address))
    except OsqueueError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


# ── Commands ─────────────────────────────────────────────────────────────────
class Command(click.Command):
    """A command whose usage errors know where they come from."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


class StoreCommand(Command):
    """A command whose first argument is an address; OSQUEUE_ADDRESS stands in when it is left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the address of the environment in front where the first argument is none."""
        return super().parse_args(ctx, self._with_address(ctx, args))

    def _with_address(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        parser = click.Command(self.name, params=list(options), add_help_option=False).make_parser(ctx)
        try:
            given, words, _ = parser.parse_args(list(args))
        except click.UsageError:
            if ctx.resilient_parsing:
                return args
            raise
        if given.get("json"):
            ctx.ensure_object(Output).json = True  # also for the errors below
        helps = self.get_help_option(ctx)
        if helps is not None and helps.name in given:
            return args
        if words and "://" in words[0]:
            as_text(words[0], "address")
            return args
        address = os.environ.get(ADDRESS_VARIABLE, "")
        if "://" in address:
            return [as_text(address, "address"), *args]
        how = f"Write one like file:///var/lib/jobs, s3://bucket/prefix or https://host, or set {ADDRESS_VARIABLE}."
        if ctx.resilient_parsing:  # a shell completes the command
            return args
        if not words:
            raise click.UsageError(f"Missing argument 'ADDRESS'. {how}", ctx)
        raise click.UsageError(f"{words[0]!r} is not an address. {how}", ctx)


# ── Options made from tables ─────────────────────────────────────────────────
_WRITTEN: dict[type, tuple[Any, str]] = {  # how an option of that type is read, and what it looks like
    str: (str, ""),
    int: (int, ""),
    float: (duration, "Such as 90, 10m, 2h, 7d."),
    tuple: (rate, "Such as 100/60s."),
    datetime: (moment, "Such as 2030-01-31T08:00:00Z, or Unix seconds."),
}


def _pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str] | None:
    """Repeated NAME=VALUE as a mapping."""
    found: dict[str, str] = {}
    for each in value:
        name, sign, text = each.partition("=")
        if not sign or name in found:
            why = "stands there twice" if sign else "is no NAME=VALUE"
            raise click.BadParameter(f"{each!r} {why}.")
        found[name] = text
    return found or None


def options_of(fields: Iterable[DescribedField]) -> Callable[[F], F]:
    """An option for each field; those not given are None.

    A mapping is an option that may be repeated: ``headers`` is ``--header NAME=VALUE``.
    """
    made = [_option(field) for field in fields]

    def decorate(function: F) -> F:
        for option in reversed(made):
            function = option(function)
        return function

    return decorate


def _option(field: DescribedField) -> Callable[[F], F]:
    name, about = field.name.replace("_", "-"), field.about
    if field.type is dict:
        return click.option(
            f"--{name.removesuffix('s')}",
            field.name,
            multiple=True,
            callback=_pairs,
            metavar="NAME=VALUE",
            help=f"{about.description} May be repeated.",
        )
    if field.type is Unique:
        return _unique_options
    if field.type is list:
        return click.option(
            f"--{name}",
            field.name,
            callback=lambda _context, _option, text: (
                None if text is None else msgspec.json.decode(json(text))
            ),
            metavar="JSON",
            help=f'{about.description} Such as \'[{{"kind": "notify"}}]\'.',
        )
    if field.type is bool:
        return click.option(f"--{name}/--no-{name}", field.name, default=None, help=about.description)
    form, example = _WRITTEN[field.type]
    bounds = f"{about.ge} to {about.le:,}." if field.type is int else ""
    default = "" if field.default in (None, UNSET) else f" [default: {_shown(field.default)}]"
    words = " ".join(filter(None, (about.description, bounds, example, default)))
    return click.option(f"--{name}", field.name, type=form, help=words)


def _unique_options(function: F) -> F:
    """The parts of ``Unique``, an option each: ``unique_of`` puts them together."""
    parts = described_fields(Unique)
    choices = {"while_": get_args(While), "on_duplicate": get_args(OnDuplicate)}
    for name, flag in reversed(UNIQUE_FLAGS.items()):
        about, words = parts[name].about, choices.get(name)
        form: Any = duration if words is None else click.Choice(words)
        text = f"With --id. {about.description}{'' if words else ' Such as 90, 10m, 2h, 7d.'}"
        function = click.option(flag, "unique" if name == "on_duplicate" else name, type=form, help=text)(
            function
        )
    return function


UNIQUE_FLAGS = {
    "on_duplicate": "--unique",
    "while_": "--while",
    "window": "--window",
    "max_wait": "--max-wait",
}


def unique_asked(options: dict[str, Any]) -> dict[str, Any]:
    """Options as a command got them, with ``Unique`` of its parts."""
    given = {name: options.pop("unique" if name == "on_duplicate" else name) for name in UNIQUE_FLAGS}
    asked = {name: value for name, value in given.items() if value is not None}
    return {**options, "unique": Unique(**asked)} if asked else options


def _shown(default: Any) -> str:
    """A default as one would write it: a float is a duration."""
    return f"{default / 3600:g}h" if isinstance(default, float) else str(default)


job_options = options_of(OPTIONS.values())  # as ``enqueue`` takes them


# ── Opening what an address names ────────────────────────────────────────────
def open_at(address: str, lasting: bool = True) -> CountingStore:
    """The store at an address; ``lasting`` refuses one that would end with this command.

    Raises NotSupported for the address of an API: what asks for a store needs its objects.
    """
    store = open_store(address)
    if lasting and not store.shared:
        raise Rejected(
            "address: memory:// lives inside one process and would be gone when this command ends. Use"
            " file:///path or s3://bucket/prefix (only bench takes memory://).",
            field="address",
        )
    return store


def open_queue(address: str, name: str, timeout: float, sinks: Iterable[Sink] = ()) -> Queue[Any]:
    """The queue of that name at an address, of a store or of an API."""
    if is_remote(address):
        return Queue.connect(address, name, timeout=timeout, sinks=sinks)
    return Queue(open_at(address), name, timeout=timeout, sinks=sinks)


def queues_at(store: CountingStore) -> list[str]:
    """The names of all queues that were ever used there."""
    return BlockingDriver(store, MACHINE).run(registered())


def no_folder(store: CountingStore) -> str:
    """Words that say that a store's folder does not exist; "" where it does, or the store has none."""
    root = getattr(store.inner, "root", None)
    return f": there is no folder {root}" if isinstance(root, str) and not os.path.isdir(root) else ""


def queues_of(transport: Transport, timeout: float) -> list[dict[str, Any]]:
    """The statistics of all queues of an API. One that cannot be read has its name and an ``error``."""
    from ..client.admin import RemoteQueues

    return BlockingDriver(transport, MACHINE).run(RemoteQueues(MACHINE, timeout).queues())


def is_known(queue: Queue[Any]) -> bool:
    """Whether anything was ever enqueued in the queue, or it was configured."""
    if queue.transport is not None:
        return bool(queue.stats()["commits"])
    return not isinstance(queue.store.perform(Get(REGISTER + queue.name)), Missing)


def existing_queue(queue: Queue[Any]) -> Queue[Any]:
    """The queue, if it exists; raises NotFound naming those that do. A typing error must not make a queue."""
    if not is_known(queue):
        no_such_queue(queue)
    return queue


def archived_queue(queue: Queue[Any]) -> Queue[Any]:
    """The queue, if it exists, or its archive still does, as after 'queue rm'. Raises NotFound."""
    if not is_known(queue) and not BlockingDriver(queue.store, MACHINE).run(parts(queue.name, None)):
        no_such_queue(queue)
    return queue


@contextmanager
def known_if_missing(queue: Queue[Any]) -> Iterator[None]:
    """When something is not found: is it the queue that does not exist? Costs nothing otherwise."""
    try:
        yield
    except NotFound:
        if not is_known(queue):
            no_such_queue(queue)
        raise


def no_such_queue(queue: Queue[Any]) -> NoReturn:
    """Raise the error for a name nobody used yet."""
    from difflib import get_close_matches

    if queue.transport is not None:
        names = [row["queue"] for row in queues_of(queue.transport, queue.timeout)]
    else:
        names = queues_at(queue.store)
    near = get_close_matches(queue.name, names, NEAR_NAMES_MAX) or names[:NEAR_NAMES_MAX]
    there = f"There are: {', '.join(near)}." if near else "There are none."
    if not near and queue.transport is None:
        there = f"There are none{no_folder(queue.store)}."
    more = "" if len(near) == len(names) else " 'osqueue queue ls' shows all."
    raise NotFound(f"no queue {queue.name!r} at this address. {there}{more} The first enqueue makes one.")
