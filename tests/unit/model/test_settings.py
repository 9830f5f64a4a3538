"""A queue's settings: one table, and nothing that forgets a row of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import asdict
from msgspec.structs import fields as struct_fields

from osqueue import Pacer, Queue, Rejected
from osqueue.cli.queues import configure
from osqueue.contract.admin_schemas import Settings
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import KindSettings, QueueSettings
from osqueue.model.settings import (
    DEFAULTS,
    KIND_SETTINGS,
    NESTED,
    SETTINGS,
    TOLD,
    WishedSettings,
    change_of,
    said,
    settings_view,
)
from osqueue.server.openapi import STATS
from osqueue.stores.memory import MemoryStore

# Of every setting a value that is not its default. Whoever adds a setting adds one: the tests below need it.
OTHER: dict[str, Any] = {
    "paused": True,
    "paused_until": "2030-01-31T12:00:00.000Z",
    "backoff_base": 5.0,
    "backoff_cap": 50.0,
    "dead_ttl": 3600.0,
    "archive_payloads": True,
    "limiter": "stripe",
    "ageing": 60.0,
    "fair": True,
    "max_running": 3,
    "rate": [100, 60.0],
    "burst": 4,
    "shards": 2,
    "group_running": 3,
    "group_rate": [5, 60.0],
    "group_burst": 2,
    "group_on_failure": "skip",
    "group_on_dead": "stop",
    "group_shards": 2,
    "priority": 2,
    "max_attempts": 7,
    "result_ttl": 60.0,
    "run_within": 30.0,
    "start_within": 90.0,
    "kinds": {"mail": {"max_attempts": 9, "backoff_base": 2.0, "rate": [3, 1.0]}},
    "consumers": {
        "mailer": {
            "target": "mail",
            "kinds": ["mail"],
            "batch": 5,
            "max_concurrency": 3,
            "window": 1.0,
            "lease": 60.0,
        }
    },
}
COLUMNS = [setting.column for setting in SETTINGS.values()]


def test_every_setting_has_another_value_to_be_tested_with() -> None:
    assert set(OTHER) == set(TOLD)
    assert all(value != DEFAULTS[name] for name, value in OTHER.items())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_a_meaning_and_bounds_with_its_default_between_them(name: str) -> None:
    setting = SETTINGS[name]
    assert setting.about.description
    assert (
        setting.type in (bool, dict, datetime, tuple, str)
        or name not in TOLD
        or (DEFAULTS[name] == 0 and name == "group_shards")  # until the first job of a group fixes it
        or setting.about.ge <= DEFAULTS[name] <= setting.about.le
    )  # type: ignore[operator]


def test_every_field_is_described_and_left_out_by_default() -> None:
    assert list(WishedSettings.__struct_fields__) == list(SETTINGS)
    assert set(asdict(WishedSettings()).values()) == {None, UNSET}
    assert said(WishedSettings()) == {}


def test_the_head_has_a_column_for_every_setting_and_an_operation_that_changes_it() -> None:
    assert set(QueueSettings.__struct_fields__) == {*COLUMNS, "shard", "overrides"} - {
        "groups"
    }  # those are holds, and what is different for one group
    defaults = {field.name: field.default for field in struct_fields(ChangeSettings)}
    assert defaults == {
        **dict.fromkeys(COLUMNS),
        "kinds": (),
        "consumers": (),
        "groups": (),
        "kinds_dropped": (),
        "consumers_dropped": (),
        "recorded": False,
        "shard": None,
    }
    kept = {field.name: field.default for field in struct_fields(KindSettings) if field.name != "kind"}
    assert kept == dict.fromkeys(each.column for each in KIND_SETTINGS.values())


def test_a_change_carries_every_setting() -> None:
    changed = asdict(change_of(OTHER))
    assert changed.pop("shard") is None  # each shard is told its own
    assert None not in changed.values()
    assert changed.pop("kinds_dropped") == changed.pop("consumers_dropped") == ()
    assert changed.pop("recorded") is False
    assert changed.pop("groups") == ()
    assert settings_view(QueueSettings(**changed)) == OTHER


def test_statistics_tell_what_was_configured(machine: Any) -> None:
    store = MemoryStore(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    Pacer(store, "stripe", machine=machine).create(1)
    q.configure(**OTHER)
    told = q.stats()
    assert told["settings"] | {name: told[name] for name in ("paused", "paused_until", "shards")} == OTHER
    assert list(told["settings"]) == list(STATS["properties"]["settings"]["properties"]) == NESTED


def test_the_api_and_the_command_line_take_every_setting() -> None:
    assert list(Settings.__struct_fields__) == list(SETTINGS)
    taken = {parameter.name for parameter in configure.params}
    assert (
        set(SETTINGS) - {"kinds", "groups", "consumers"} <= taken
    )  # groups are paused by a command of their own
    assert {"kind", "drop_kind"} <= taken


@pytest.mark.parametrize("name", SETTINGS)
def test_a_value_past_its_bounds_is_refused_by_name(name: str) -> None:
    wrong: Any = "yes" if SETTINGS[name].type in (bool, dict, tuple) else (SETTINGS[name].about.le or 0) + 1
    with pytest.raises(Rejected, match=f"^{name}: ") as caught:
        change_of({name: wrong})
    assert caught.value.field == name
