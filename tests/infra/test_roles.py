"""Each role is enough for its function, and nothing in it is more than that: shown by the requests functions make.

Every function's part of the API runs against one store, each behind a gate that reads the function's role and the
bucket's policy out of the templates, as S3 would. What a role refuses is a failed test, and so is a permission that
nobody used.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from typing import Any
from unittest.mock import patch

import pytest

from osqueue import limits
from osqueue.bulk.writer import BulkWriter
from osqueue.commit import news
from osqueue.contract.functions import FUNCTIONS
from osqueue.contract.operations import ROUTES
from osqueue.core.encoding import decode_head
from osqueue.core.intents import intent_body, intent_key, intents_prefix
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.core.ops import Request as Announced
from osqueue.limits import INLINE_BYTES_MAX
from osqueue.model import keys
from osqueue.objects import id_index
from osqueue.objects.layout import root_of
from osqueue.server.app import Api, ApiRequest
from osqueue.stores import base
from osqueue.stores.memory import MemoryStore
from osqueue.testing import Clock
from osqueue_cdk.access import ACCESS
from tests.support.gate import Gate

HOUR, DAY = 3_600, 86_400
REST = news.REST_MS // 1000 + 1  # seconds
LARGE = "x" * (2 * INLINE_BYTES_MAX)
VERY_LARGE = b'"%s"' % (b"x" * 5_000_000)  # no request and no answer holds it
GHOSTS = 200  # so that some of them are looked at, in whichever hours the passes are
BULK = 1_000  # jobs in one call: enough of these go into a segment
BATCHES = 100  # so that the passes come to some of them


class Deployment:
    """All functions over one bucket, each with its own role."""

    def __init__(
        self, roles: dict[str, list[dict[str, Any]]], bucket: list[dict[str, Any]], policies: Any
    ) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.store.look_pace = base.Store.look_pace  # where looks cost money, ends of rests are reported
        self.store.perform(base.PutIfAbsent(news.NEWS, news.encoded(())))
        self.gates = {name: Gate(self.store, [*role, *bucket], policies) for name, role in roles.items()}
        self.apis = {
            name: Api(gate, routes=[each for each in ROUTES if each.function == name], machine=self.clock)
            for name, gate in self.gates.items()
        }
        self.rival = Api(self.store, machine=self.clock)
        self.keys = keys.KeySource(self.clock)
        self.asked: Counter[str] = Counter()  # by function
        self.writers = 0  # that died after they had announced a job

    def ask(self, function: str, method: str, path: str, body: Any = None, **query: str) -> Any:
        """One request, sent to a function; its answer's body."""
        data = b"" if body is None else json.dumps(body).encode()
        # A rival's commit comes in between, so that the function publishes, or announces, combines and cleans up.
        self.gates[function].rival = self._commit_first
        place = path if path.startswith("/v1/") else f"/v1/queues{path}"
        self.asked[function] += 1
        few = limits.FEW_WRITERS_MAX if self.asked[function] % 2 == 0 else 0
        with patch.object(limits, "FEW_WRITERS_MAX", few):
            answer = self.apis[function].answer(ApiRequest(method, place, tuple(query.items()), data))
        self.gates[function].rival = None
        assert answer.status < 500, (function, path, answer.body, self.gates[function].refused)
        return json.loads(answer.body) if answer.body else None

    def _commit_first(self) -> None:
        self.rival.answer(ApiRequest("POST", "/v1/queues/emails/jobs", (), b'{"payload": 0, "priority": 9}'))
        self._announce()

    def _announce(self) -> None:
        """A job that its writer announced, and died: whoever commits next takes it along.

        It does not fit into its key, so the object has to be read.
        """
        root = root_of("emails", 0)
        found = self.store.perform(base.Get(root + "head"))
        assert isinstance(found, base.Found)
        head = decode_head(found.body)
        self.writers += 1
        (key,) = self.keys.draw(0)
        ops = (EnqueueJobs((JobSpec(key, b"0" * 1_000, "json", priority=9),)),)
        request = Announced(f"{self.writers:016x}", 1, 7, head.seq, head.epoch, ops)
        place = intents_prefix(root) + intent_key(request, 1024, head.seals)
        self.store.perform(base.Put(place, intent_body(request), durable=False))

    def upload(self, queue: str) -> str:
        """Send a content past the functions; its name."""
        about = {"bytes": len(VERY_LARGE), "sha256": hashlib.sha256(VERY_LARGE).hexdigest()}
        place = self.ask("jobs", "POST", f"/{queue}/uploads", about)
        self.store.perform(base.PutIfAbsent(place["url"], VERY_LARGE))
        name: str = place["upload"]
        return name

    def reap(self) -> None:
        """What the schedule's pass does: all queues there are."""
        for name in self.queues():
            self.ask("reaper", "POST", f"/{name}/reap")

    def queues(self) -> list[str]:
        listed = self.gates["reaper"].perform(base.List("queues/"))
        assert isinstance(listed, base.Listed)
        return [key.removeprefix("queues/") for key in listed.keys]


def statements_of(made: Any, role: str) -> list[dict[str, Any]]:
    """The statements of a function's role that are about the bucket."""
    found = made.resources("functions", "AWS::IAM::Policy").items()
    (policy,) = [each for name, each in found if name.startswith(f"{role.capitalize()}Role")]
    return [each for each in policy["PolicyDocument"]["Statement"] if "s3:" in json.dumps(each["Action"])]


@pytest.fixture(scope="module")
def lived(environments: Any, policies: Any) -> Deployment:
    """A deployment after a life in which every route was asked, and a fortnight went by."""
    made = environments["prod"]
    bucket = made.only("storage", "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    roles = {each.name: statements_of(made, each.name) for each in FUNCTIONS}
    deployment = Deployment(roles, bucket, policies)
    live(deployment)
    return deployment


def live(at: Deployment) -> None:
    """Everything that the API can do, with objects of every kind."""
    old = at.ask("enqueue", "POST", "/emails/jobs", {"payload": LARGE, "id": "order-1"})["job_id"]
    at.ask("enqueue", "POST", "/emails/jobs", {"payload": 2, "id": "order-1"})
    for _ in range(12):
        at.ask("enqueue", "POST", "/emails/jobs", {"jobs": [{"payload": {"n": n}} for n in range(BULK)]})
    claimed = at.ask("claim", "POST", "/emails/claims", {"limit": 6})["jobs"]
    at.ask("heartbeat", "POST", "/emails/heartbeats", {"leases": [_lease(each) for each in claimed]})
    for name in ("crashes", "ends"):
        at.ask("heartbeat", "PUT", f"/emails/workers/{name}", {"name": "mailer"})
    at.ask("heartbeat", "DELETE", "/emails/workers/ends")
    at.ask("queues", "GET", "/emails/workers")
    endings = [{**_lease(each), "result": LARGE} for each in claimed[:4]]
    dead = [{**_lease(each), "error": "no", "retry": False} for each in claimed[4:]]
    at.ask("complete", "POST", "/emails/completions", {"completions": [*endings, *dead]})
    at.ask("jobs", "GET", "/emails/jobs", limit="5")
    at.ask("jobs", "GET", f"/emails/jobs/{old}")
    at.ask("jobs", "GET", "/emails/jobs/order-1")
    at.ask("jobs", "GET", f"/emails/jobs/{old}/result")
    at.ask("jobs", "PATCH", f"/emails/jobs/{old}", {"result_ttl": 60})
    at.ask("jobs", "GET", f"/emails/jobs/{old}/story")
    asked = {"jobs": ["order-1", old], "include": ["payload", "result", "traceback"]}
    at.ask("jobs", "POST", "/emails/status", asked)
    delayed = [{"payload": LARGE, "id": f"later-{n}", "delay": DAY} for n in range(BULK)]
    later = at.ask("enqueue", "POST", "/emails/jobs", {"jobs": delayed})["jobs"][-1]
    at.ask("jobs", "GET", f"/emails/jobs/{later['job_id']}", include="payload")
    at.ask("jobs", "POST", f"/emails/jobs/{later['job_id']}/run")
    newest = at.ask("enqueue", "POST", "/emails/jobs", {"payload": 4})["job_id"]
    at.ask("jobs", "DELETE", f"/emails/jobs/{newest}")
    at.ask("queues", "GET", "/emails/events")
    for _ in range(2):  # more transitions than the head has room for
        at.ask(
            "enqueue", "POST", "/emails/jobs", {"jobs": [{"payload": n, "delay": DAY} for n in range(BULK)]}
        )
    at.ask("queues", "GET", "/emails/events", since="0")
    at.ask("queues", "GET", "")
    at.ask("queues", "GET", "/emails")
    at.ask("queues", "PATCH", "/emails", {"dead_ttl": 20 * DAY})
    at.ask("queues", "GET", "/emails/dead", include="payload,traceback")
    at.ask("queues", "POST", "/emails/redrive", {"jobs": ["order-1"], "dry_run": True})
    at.ask("queues", "GET", "/emails/dead/groups")
    at.ask("queues", "POST", "/emails/redrive", {"limit": 1})
    at.ask("queues", "PATCH", "/fresh", {"paused": True})
    for method, body in (
        ("PUT", {"interval": 60}),
        ("PATCH", {"paused": True}),
        ("PATCH", {"paused": False}),
    ):
        at.ask("queues", method, "/v1/pacers/stripe", body)
    slot = at.ask("jobs", "POST", "/v1/pacers/stripe/reservations")
    named = {"number": slot["number"], "epoch": slot["epoch"]}
    assert at.ask("jobs", "POST", "/v1/pacers/stripe/returns", named) == {"returned": True}
    assert at.ask("jobs", "GET", "/v1/pacers/stripe")["number"] == 2
    assert [each["name"] for each in at.ask("queues", "GET", "/v1/pacers")["pacers"]] == ["stripe"]
    at.ask("queues", "DELETE", "/v1/pacers/stripe")
    at.ask("enqueue", "POST", "/letters/jobs", {"payload": 5})
    at.ask("enqueue", "POST", "/letters/jobs", {"payload": LARGE})
    (first,) = at.ask("claim", "POST", "/letters/claims")["jobs"]
    ended = {"completions": [{**_lease(first), "result": LARGE}], "claims": [{}]}
    ((single,),) = [each["jobs"] for each in at.ask("claim", "POST", "/letters/turns", ended)["claims"]]
    at.ask("complete", "POST", "/letters/completions", {"completions": [_lease(single)]})
    at.ask("enqueue", "POST", "/films/jobs", {"upload": at.upload("films")})  # its first job
    (film,) = at.ask("claim", "POST", "/films/claims")["jobs"]
    assert film["downloads"]["payload"]["bytes"] == len(VERY_LARGE)
    ended = {"completions": [{**_lease(film), "upload": at.upload("films")}]}
    at.ask("complete", "POST", "/films/completions", ended)
    assert "download" in at.ask("jobs", "GET", f"/films/jobs/{film['job_id']}/result")
    at.ask("queues", "POST", "/films/purge", {"jobs": [film["job_id"]]})
    for number in range(2):  # each function learns that news are wanted, then it reports the end of a rest
        end_rests(at, number)
    drawn = keys.key_of(newest)
    ghost = drawn[:-2] + bytes([drawn[-2] ^ 7, 0])  # of a job that nobody came to enqueue
    for n in range(GHOSTS):
        at.store.perform(base.PutIfAbsent(id_index.entry_key("emails", f"ghost-{n}"), id_index.encode(ghost)))
    bulks = BulkWriter(at.store, "emails", at.clock)
    for n in range(BATCHES):
        stager = bulks.stager(bulks.plan(), 0)
        stager.add([JobSpec(key, b"0") for key in stager.keys(1)])
        bulks.attach([stager.finish()], batch_id=f"night-{n}")
    for _ in range(4):
        at.reap()
        at.clock.advance(HOUR)
    spare = at.ask("enqueue", "POST", "/emails/jobs", {"payload": LARGE, "id": "order-2"})["job_id"]
    at.reap()
    at.ask("queues", "GET", "/emails/history")
    at.ask("queues", "POST", "/emails/purge", {"jobs": [claimed[1]["job_id"], "order-2", spare]})
    at.ask(
        "queues", "POST", "/letters/purge", {"jobs": [first["job_id"], single["job_id"]]}
    )  # all that its archive part tells of
    at.upload("emails")  # that nobody names
    for _ in range(10):
        at.clock.advance(DAY)
        at.reap()
    at.ask("jobs", "GET", f"/emails/jobs/{claimed[0]['job_id']}/story")
    at.clock.advance(30 * DAY)
    at.reap()


def end_rests(at: Deployment, number: int) -> None:
    """Let a commit of each function be the first one for a while."""
    job = at.ask("enqueue", "POST", "/rests/jobs", {"payload": 1})["job_id"]
    at.clock.advance(REST)
    (leased,) = at.ask("claim", "POST", "/rests/claims", {"limit": 1, "lease": 600})["jobs"]
    assert leased["job_id"] == job
    for function, method, path, body in (
        ("heartbeat", "POST", "/heartbeats", {"leases": [_lease(leased)]}),
        ("jobs", "DELETE", f"/jobs/{job}", None),
        ("complete", "POST", "/completions", {"completions": [_lease(leased)]}),
        ("queues", "PATCH", "", {"dead_ttl": (number + 1) * DAY}),
    ):
        at.clock.advance(REST)
        at.ask(function, method, f"/rests{path}", body)


def _lease(job: dict[str, Any]) -> dict[str, str]:
    return {"job_id": job["job_id"], "token": job["token"]}


@pytest.mark.parametrize("function", [each.name for each in FUNCTIONS])
def test_a_role_is_enough_for_what_its_function_asks(function: str, lived: Deployment) -> None:
    assert lived.gates[function].refused == []


@pytest.mark.parametrize("function", [each.name for each in FUNCTIONS])
def test_a_role_allows_nothing_that_its_function_does_not_need(
    function: str, lived: Deployment, environments: Any, policies: Any
) -> None:
    statements = statements_of(environments["prod"], function)
    granted = {
        (each["Sid"], policies.plain(one)) for each in statements for one in policies.listed(each["Resource"])
    }
    assert granted - lived.gates[function].used == set()


def test_a_gate_refuses_what_a_role_does_not_say(environments: Any, policies: Any) -> None:
    gate = Gate(MemoryStore(), statements_of(environments["prod"], "heartbeat"), policies)
    assert isinstance(gate.perform(base.Get("3f9a/emails/0/head")), base.Missing)
    for request in (
        base.Get("archive/queue=emails/part"),
        base.Put("ids/emails/00", b""),
        base.Delete(("3f9a/emails/0/segments/1",)),
        base.Delete(("3f9a/emails/0/head",)),
    ):
        assert isinstance(gate.perform(request), base.Failed)


def test_every_function_has_its_line_in_the_table() -> None:
    assert list(ACCESS) == [each.name for each in FUNCTIONS]


@pytest.mark.parametrize("name", ["dev", "staging", "prod"])
def test_no_role_has_a_wildcard_among_its_actions(name: str, environments: Any, policies: Any) -> None:
    made = environments[name]
    statements = [
        each
        for stack in ("functions", "schedule")  # for the pipeline: test_pipeline.py
        for policy in made.resources(stack, "AWS::IAM::Policy").values()
        for each in policy["PolicyDocument"]["Statement"]
    ]
    actions = defaultdict(set)
    for each in statements:
        for action in policies.listed(each["Action"]):
            actions[action] |= {policies.plain(one) for one in policies.listed(each["Resource"])}
    assert set(actions) == {
        "s3:ListBucket",
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "events:PutEvents",
        "lambda:InvokeFunction",
    }
    others = {one for action, found in actions.items() if not action.startswith("s3:") for one in found}
    # Consumers are told from other functions by a condition: test_consumers.py.
    begin = "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:"
    assert {one for one in others if "*" in one} == {f"{begin}*"}


@pytest.mark.parametrize("name", ["dev", "staging", "prod"])
def test_a_role_is_one_function_s_own(name: str, environments: Any) -> None:
    made = environments[name]
    used = [
        each["Role"]["Fn::GetAtt"][0]
        for each in made.resources("functions", "AWS::Lambda::Function").values()
    ]
    assert len(set(used)) == len(FUNCTIONS)
    for each in made.resources("functions", "AWS::IAM::Role").values():
        (statement,) = each["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}
        assert "ManagedPolicyArns" not in each
