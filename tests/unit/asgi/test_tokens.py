"""The file of tokens: what is refused in it, and that it is read again when it changes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from osqueue.asgi.tokens import Identity, Token, TokenFile, digest_of, tokens_in
from osqueue.clock import Machine
from osqueue.contract.error_codes import Forbidden, Unauthorized
from osqueue.contract.operations import BY_NAME, ROUTES
from osqueue.contract.roles import Role, may
from osqueue.errors import Rejected

GOOD = f'[[token]]\nname = "a"\nsha256 = "{digest_of("one")}"\nroles = ["work"]\n'


class Moved(Machine):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        """Seconds."""
        return self.seconds


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[token]]\nname =", "Invalid"),
        ("[[tokens]]", "tokens"),
        (GOOD.replace("work", "boss"), "boss"),
        (GOOD.replace("roles", "role"), "role"),
        (GOOD.replace('["work"]', "[]"), "roles"),
        (GOOD.replace(digest_of("one"), "one"), "sha256"),
        (GOOD + "queues = []\n", "queues"),
        ("", "token"),
    ],
    ids=["broken", "no token", "role", "field", "no role", "digest", "no queue", "empty"],
)
def test_what_the_file_may_not_hold_is_named(text: str, what: str) -> None:
    with pytest.raises(Rejected, match=what) as caught:
        tokens_in(text.encode())
    assert caught.value.field == "tokens"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="No such file"):
        TokenFile(tmp_path / "none.toml")


def test_a_token_comes_and_goes_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, machine = tmp_path / "tokens.toml", Moved()
    path.write_text(GOOD)
    tokens = TokenFile(path, machine)
    assert tokens.caller("bearer one").name == "a"

    path.write_text(GOOD.replace(digest_of("one"), digest_of("two")))
    os.utime(path, ns=(1, 1))  # whatever the file system's clock
    machine.seconds = 2.0
    assert tokens.caller("Bearer two").name == "a"
    with pytest.raises(Unauthorized):
        tokens.caller("Bearer one")

    path.write_text("nonsense")
    machine.seconds = 4.0
    with caplog.at_level(logging.ERROR, "osqueue.serve"):
        assert tokens.caller("Bearer two").name == "a"  # those that were known stay
    assert "not of the form" in caplog.text


@pytest.mark.parametrize("header", ["", "one", "Basic one", "Bearer", "Bearer three"])
def test_what_is_no_known_token_is_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(GOOD)
    with pytest.raises(Unauthorized) as caught:
        TokenFile(path).caller(header)
    assert caught.value.permanent


def test_a_token_for_some_queues_is_not_for_all_of_them_at_once() -> None:
    caller = Identity(Token("a", "", (Role.OPERATE,), ("orders-*", "mail")))
    caller.permit(BY_NAME["stats"], "orders-1")
    caller.permit(BY_NAME["stats"], "mail")
    for queue in ("order", "mails", ""):
        with pytest.raises(Forbidden, match=r"orders-\*"):
            caller.permit(BY_NAME["stats"], queue)


@pytest.mark.parametrize(
    ("operation", "subject", "named"),
    [("reserve_slot", "stripe", "pacer stripe"), ("list_pacers", "", "all pacers at once")],
)
def test_a_refusal_names_the_pacer(operation: str, subject: str, named: str) -> None:
    caller = Identity(Token("a", "", (Role.OPERATE,), ("orders-*",)))
    with pytest.raises(Forbidden, match=named):
        caller.permit(BY_NAME[operation], subject)


# ── Roles ────────────────────────────────────────────────────────────────────
def test_every_operation_that_only_reads_is_for_readers_and_no_other_is() -> None:
    for route in ROUTES:
        reads = route.method == "GET" or route.name == "status_many"
        assert may(Role.READ, route) == reads, route.name
        assert may(Role.OPERATE, route)


def test_producers_and_workers_may_do_what_they_are_for_and_no_more() -> None:
    open_to_all = {"health", "openapi"}
    follow = {"status", "status_many", "result"}
    producers = {route.name for route in ROUTES if may(Role.ENQUEUE, route)}
    workers = {route.name for route in ROUTES if may(Role.WORK, route)}
    slots = {"get_pacer", "reserve_slot", "return_slot"}
    registry = {"put_worker", "delete_worker"}
    assert (
        workers
        == {"claim", "complete", "turn", "heartbeat", "upload"} | registry | slots | follow | open_to_all
    )
    assert producers >= {"enqueue", "upload", "cancel"} | slots | follow | open_to_all
    assert not producers & {"purge", "configure", "redrive", "claim", "complete", "list_jobs", "dead_letters"}
    assert not producers & {"list_pacers", "put_pacer", "change_pacer", "delete_pacer"}
