"""How an id is kept unique: for how long it is taken, and what a second job under it does to the first."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from .. import limits
from ..core.job_ops import UniqueRule
from ..errors import Rejected, shown
from .validation import milliseconds, seconds, word

While = Literal["kept", "live", "waiting"]
OnDuplicate = Literal["keep", "replace", "debounce", "restart"]
DEBOUNCE = "debounce"
RESTART = "restart"


class Unique(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"while_": "while"},
):
    """What ``enqueue(id=…, unique=Unique(…))`` says of the id. Without it: taken while "kept", and "keep"."""

    while_: (
        Annotated[
            While,
            Meta(
                description="For how long a job takes its id: while its result is kept, while it is live (waits or"
                " runs), or only while it is waiting. Left out, kept; with all but keep, waiting."
            ),
        ]
        | None
    ) = None
    window: (
        Annotated[
            float,
            Meta(
                description="Taken for so many seconds from the first enqueue as well, whatever becomes of the job.",
                ge=1 / 1000,
                le=limits.UNIQUE_WINDOW_MS_MAX / 1000,
            ),
        ]
        | None
    ) = None
    on_duplicate: (
        Annotated[
            OnDuplicate,
            Meta(
                description="What a second one does while the first waits: it is not added (keep), takes its place"
                " (replace), or takes its place and is due only after its delay (debounce). Or it takes its place, and"
                " asks one that runs to end and waits behind it in their group (restart)."
            ),
        ]
        | None
    ) = None
    max_wait: (
        Annotated[
            float,
            Meta(
                description="Debounce: the most seconds from the first enqueue to when it is due.",
                ge=1 / 1000,
                le=limits.DELAY_MS_MAX / 1000,
            ),
        ]
        | None
    ) = None


_NAMES = {"while_": "while", "window": "window", "on_duplicate": "on_duplicate", "max_wait": "max_wait"}


def rule_of(value: Any) -> UniqueRule:
    """A caller's ``Unique``, or a mapping of its fields, as operations carry it. Raises Rejected."""
    asked = _asked(value)
    held = _one_of(asked.get("while_"), "while", While)
    what = _one_of(asked.get("on_duplicate"), "on_duplicate", OnDuplicate) or "keep"
    window = _ms(asked.get("window"), "window", limits.UNIQUE_WINDOW_MS_MAX)
    most = _ms(asked.get("max_wait"), "max_wait", limits.DELAY_MS_MAX)
    if most and what != DEBOUNCE:
        raise Rejected(
            'unique.max_wait: it bounds how far a job is postponed. Give it with on_duplicate="debounce".',
            field="unique.max_wait",
        )
    if what == RESTART and held not in ("", "waiting"):
        raise Rejected(
            f'unique.while: {held!r} keeps a second job out while the first runs, and on_duplicate="restart" lets it'
            " wait behind that. Leave one of them out.",
            field="unique.while",
        )
    held = held or ("kept" if what == "keep" else "waiting")
    return UniqueRule("" if held == "kept" else held, "" if what == "keep" else what, window, most)


def unique_of(rule: UniqueRule) -> Unique:
    """The inverse."""
    return Unique(
        while_=rule.while_ or "kept",  # type: ignore[arg-type]
        window=rule.window_ms / 1000 or None,
        on_duplicate=rule.on_duplicate or "keep",  # type: ignore[arg-type]
        max_wait=rule.max_wait_ms / 1000 or None,
    )


def check_unique(columns: Mapping[str, Any]) -> None:
    """Raises Rejected where a rule does not go with the other options of its job."""
    rule: UniqueRule | None = columns.get("unique")
    if rule is None:
        return
    if columns.get("client_id") is None:
        raise Rejected("unique: it says how an id is kept unique. Give the job an id.", field="unique")
    if rule.on_duplicate == RESTART and not columns.get("group"):
        raise Rejected(
            'group: on_duplicate="restart" lets the new job wait until the one that runs has ended, which is what a'
            " group does. Give all jobs of the id the same one.",
            field="group",
        )
    if rule.on_duplicate != DEBOUNCE:
        return
    delay = columns.get("delay_ms", 0)
    if not delay:
        raise Rejected(
            "delay: debounce postpones the job by it with every call. Give one, such as delay=5.",
            field="delay",
        )
    if 0 < rule.max_wait_ms < delay:
        raise Rejected(
            f"unique.max_wait: {rule.max_wait_ms / 1000:g} s is less than the delay of {delay / 1000:g} s. Make it at"
            " least as long.",
            field="unique.max_wait",
        )


def _asked(value: Any) -> dict[str, Any]:
    if isinstance(value, Unique):
        return {name: getattr(value, name) for name in _NAMES}
    if not isinstance(value, Mapping):
        raise Rejected(
            f"unique: {shown(value)} is no Unique(…), nor a mapping of {', '.join(_NAMES.values())}.",
            field="unique",
        )
    known = {told: name for name, told in _NAMES.items()}
    found = {}
    for name, each in value.items():
        if name not in known:
            raise Rejected(
                f"unique.{shown(name)[1:-1]}: no such field. Known: {', '.join(known)}.", field="unique"
            )
        found[known[name]] = each
    return found


def _one_of(value: Any, name: str, words: Any) -> str:
    return "" if value is None else word(value, f"unique.{name}", get_args(words))


def _ms(value: Any, name: str, most: int) -> int:
    return 0 if value is None else milliseconds(seconds(value), f"unique.{name}", 1, most)
