"""The kinds of runs in which heads are lost and restored: with groups, rates, push consumers and listeners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from .conditions import TIGHT, Profile


def life_profiles(others: Mapping[str, Profile]) -> Iterator[Profile]:
    """Return those kinds of runs, made of other ones."""
    repairs = others["repairs"]
    yield replace(  # groups wait for their jobs, and operators change what they wait for
        repairs,
        name="groups mended",
        limits=TIGHT | {"LANES_MAX": 3, "LABELS_OF_A_SPAN_BYTES_MAX": 140},
        clients=replace(repairs.clients, groups=3, policies=True, operators=3, rounds=20, pause_seconds=1.0),
    )
    yield replace(  # jobs have start deadlines and time limits; the queue, kinds and groups have rates
        repairs,
        name="rates mended",
        clients=replace(repairs.clients, groups=2, time_limits=0.05, operators=3, pause_seconds=1.0),
    )
    yield replace(  # functions are invoked when jobs wait
        repairs,
        name="consumers mended",
        clients=replace(repairs.clients, workers=1, attachers=1, rounds=20),
    )
    yield replace(  # some listen, leave and come back
        repairs,
        name="events mended",
        limits=others["events"].limits,
        clients=replace(repairs.clients, listeners=3, rounds=20, pause_seconds=1.0),
    )
