"""The construct library in an app of somebody's own: the public API, a deployment in one stack, and grants."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
from aws_cdk import aws_iam as iam
from constructs import Construct
from msgspec import Struct

import osqueue_cdk
from osqueue import Queue, Rejected
from osqueue.contract.functions import FUNCTIONS, deployed_name
from osqueue.contract.operations import ROUTES, Route
from osqueue.contract.roles import Role, may
from osqueue.stores import base
from osqueue.stores.memory import MemoryStore
from osqueue.testing import Clock
from osqueue_cdk import Alarms, Deployment, DeploymentSettings, Jwt, Misconfigured, Osqueue
from tests.support.gate import Gate

KEY = "arn:aws:kms:eu-west-1:123456789012:key/ab12-cd34"
PLACE = {"account": "123456789012", "region": "eu-west-1"}

# What users write, and so what may not change without a word. Structs are described in docs/deploy.md.
PUBLIC = {
    "AlarmSpec": "(*, name, what, metric, threshold, periods=, of_them=, missing=, operator=)",
    "Alarms": "(*, oldest_s=, dead=, error_share=, errors=, conflict_share=, emails=, topic=)",
    "HttpApi": "(scope, construct_id, *, name, settings, functions)",
    "ArchiveTiering": "(*, infrequent_days=, glacier_days=)",
    "Assets": "(layer, functions)",
    "Bus": "(scope, construct_id, *, name, settings)",
    "Canary": "(*, minutes=, errors=)",
    "Cors": "(*, origins, max_age_s=)",
    "DeployedQueue": "(deployment, name)",
    "DeployedQueue.add_consumer": (
        "(name, function, *, batch=, max_concurrency=, window=, kinds=, lease=, layer=, events=)"
    ),
    "DeployedQueue.grant_enqueue": "(grantee, via=)",
    "DeployedQueue.grant_operate": "(grantee, via=)",
    "DeployedQueue.grant_read": "(grantee, via=)",
    "DeployedQueue.grant_work": "(grantee, via=)",
    "Deployment": "(scope, construct_id, *, name, kms_key=, express_zone=)",
    "Deployment.address": "(via=)",
    "Deployment.api_id": "attribute",
    "Deployment.endpoint": "attribute",
    "Deployment.event_bus": "attribute",
    "Deployment.grant_wake": "(grantee)",
    "Deployment.layer": "attribute",
    "Deployment.queue": "(name)",
    "Deployment.has_bus": "attribute",
    "Deployment.takes_tokens": "attribute",
    "Domain": "(*, name, certificate, zone=)",
    "Endpoints": "(*, vpc, route_tables=, subnets=, security_groups=)",
    "Functions": "(scope, construct_id, *, name, settings, assets)",
    "Jwt": "(*, issuer, audience, scopes=)",
    "Misconfigured": "(args, kwargs)",
    "Operations": "(scope, construct_id, *, name, settings, api_id, more=)",
    "Osqueue": "(scope, construct_id, *, name, settings=, assets=)",
    "Osqueue.from_name": "(scope, construct_id, name, *, kms_key=, express_zone=)",
    "RequestLimit": "(*, rate=, burst=)",
    "ReaperSchedule": "(scope, construct_id, *, name, functions)",
    "DeploymentSettings": "(*, jwt=, cors=, domain=, endpoints=, express_zone=, kms_key=, logs_kms_key=,"
    " topic_kms_key=, throttle=, concurrency=, window_s=, canary=, log_level=, log_days=, tracing=, events=,"
    " events_archive_days=, archive=, alarms=, queues_removable=, bucket_stays=, protected=)",
    "Storage": "(scope, construct_id, *, name, settings)",
    "VpcEndpoints": "(scope, construct_id, *, settings)",
}


def signature_of(function: Any) -> str:
    parts: list[str] = []
    for each in inspect.signature(function).parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(each.name if each.default is each.empty else f"{each.name}=")
    return f"({', '.join(parts)})"


def test_the_public_api_is_this() -> None:
    found: dict[str, str] = {}
    for name in osqueue_cdk.__all__:
        kind = getattr(osqueue_cdk, name)
        found[name] = signature_of(kind if issubclass(kind, Struct) else kind.__init__)
        if not issubclass(kind, Struct):
            members = {each: value for each, value in vars(kind).items() if each[0] != "_"}
            for each, value in members.items():
                if isinstance(value, cached_property | bool):
                    found[f"{name}.{each}"] = "attribute"
                elif inspect.isroutine(value):
                    found[f"{name}.{each}"] = signature_of(getattr(value, "__func__", value))
    assert found == PUBLIC


@pytest.fixture(scope="session")
def whole(in_one_stack: Any) -> Any:
    """All of a deployment in a stack of somebody's app."""
    return in_one_stack(lambda stack, assets: Osqueue(stack, "Jobs", name="prod", assets=assets))


# ── A deployment in one stack ────────────────────────────────────────────────
def test_a_deployment_in_one_stack_is_what_the_six_stacks_are(whole: Any, dev: Any) -> None:
    """Of the same kinds, and as many of each; cdk-nag and the names of functions included."""

    def kinds(templates: list[dict[str, Any]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for template in templates:
            for each in template["Resources"].values():
                found[each["Type"]] = found.get(each["Type"], 0) + 1
        found.pop("AWS::CDK::Metadata", None)
        return found

    assert kinds([whole.template]) == kinds(list(dev.templates.values()))
    names = {each["FunctionName"] for each in whole.resources("AWS::Lambda::Function").values()}
    assert names == {deployed_name("osqueue-prod", each.name) for each in FUNCTIONS}


def test_a_template_of_one_stack_is_one_that_cloudformation_takes(whole: Any, lint: Any) -> None:
    assert lint([whole.path]) == []


def test_functions_are_made_after_the_bucket_and_the_bus(whole: Any) -> None:
    resources = whole.template["Resources"]
    for each in resources.values():
        if each["Type"] == "AWS::Lambda::Function":
            needed = {resources[name]["Type"] for name in each["DependsOn"]}
            assert {"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::Events::EventBus"} <= needed


def test_the_gateway_and_the_schedule_come_after_the_functions(whole: Any) -> None:
    """By what they refer to, for their names alone would tell CloudFormation nothing."""
    for each in whole.resources("AWS::Lambda::Permission").values():
        assert "Fn::GetAtt" in each["FunctionName"]
    (schedule,) = whole.resources("AWS::Scheduler::Schedule").values()
    assert "Fn::GetAtt" in schedule["Target"]["Arn"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (DeploymentSettings(log_days=8), "log_days: 8 is none of "),
        (DeploymentSettings(protected=True), "alarms.emails: alarms reach nobody"),
        (DeploymentSettings(alarms=Alarms(emails=("nobody",))), "alarms.emails"),
        (DeploymentSettings(kms_key="alias/jobs"), "kms_key"),
        (DeploymentSettings(kms_key=KEY.replace("eu-west-1", "eu-west-2")), "kms_key: it lies in eu-west-2"),
    ],
)
def test_what_cannot_be_deployed_is_refused_by_its_field(
    settings: DeploymentSettings, said: str, in_one_stack: Any
) -> None:
    def fill(stack: Any, assets: Any) -> None:
        Osqueue(stack, "Jobs", name="prod", settings=settings, assets=assets)

    with pytest.raises(Misconfigured, match=said):
        in_one_stack(fill, env=PLACE)


def test_a_name_that_cannot_begin_aws_names_is_refused(in_one_stack: Any) -> None:
    with pytest.raises(Misconfigured, match=r"^name: "):
        in_one_stack(lambda stack, assets: Osqueue(stack, "Jobs", name="Prod", assets=assets))


def test_in_a_clone_the_layer_has_to_be_given(in_one_stack: Any) -> None:
    with pytest.raises(Misconfigured, match=r"^assets: .*\(make layers\)"):
        in_one_stack(lambda stack, assets: Osqueue(stack, "Jobs", name="prod"))


# ── Grants ───────────────────────────────────────────────────────────────────
Grant = Callable[[Any, iam.IGrantable], object]


@pytest.fixture
def granted(in_one_stack: Any, policies: Any) -> Callable[..., list[dict[str, Any]]]:
    """The statements that a role gets for a queue of a deployment that is known by its name."""

    def run(role: str, via: str, queue: str = "emails", **options: Any) -> list[dict[str, Any]]:
        def fill(stack: Any, assets: Any) -> None:
            caller = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
            jobs = Osqueue.from_name(stack, "Jobs", "prod", **options)
            getattr(jobs.queue(queue), f"grant_{role}")(caller, via=via)

        (policy,) = in_one_stack(fill).resources("AWS::IAM::Policy").values()
        found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
        for each in found:
            each["Resource"] = [policies.plain(one) for one in policies.listed(each["Resource"])]
        return found

    return run


def call_of(route: Route, queue: str = "emails") -> str:
    """A request as IAM names it, by somebody who asks for a job or a batch of a long name."""
    path = route.path.replace("{queue}", queue)
    parts = [part if part[:1] != "{" else "a:b-7" for part in path.split("/")]
    return f"$default/{route.method}{'/'.join(parts)}"


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
def test_over_http_a_role_gets_its_routes_of_its_queue(role: Role, granted: Any, policies: Any) -> None:
    (statement,) = granted(role.value, "http")
    assert statement["Action"] == "execute-api:Invoke"
    starts = {each.partition("/$default/")[0] for each in statement["Resource"]}
    (start,) = starts
    assert start.startswith("arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>:<")

    def allowed(route: Route, queue: str = "emails") -> bool:
        return bool(policies.allowed([statement], "execute-api:Invoke", f"{start}/{call_of(route, queue)}"))

    mine = {each.name for each in ROUTES if "{queue}" in each.path and may(role, each)}
    more = {each.name for each in ROUTES if allowed(each)} - mine
    assert {each.name for each in ROUTES if allowed(each)} >= mine
    # A pattern of IAM cannot tell what lies below a job from the job: the same job's story, read as its status is.
    assert more == ({"story"} if role is Role.WORK else set())
    assert [each.name for each in ROUTES if allowed(each, "emails-2")] == []


def test_a_policy_over_http_fits_into_a_role(granted: Any) -> None:
    """IAM takes 10,240 characters in all policies of a role that are its own."""
    (statement,) = granted("operate", "http", queue="e" * 64)
    assert len(json.dumps(statement)) < 10_240


@pytest.mark.parametrize(
    ("role", "functions"),
    [
        ("enqueue", {"enqueue", "jobs"}),
        ("work", {"claim", "complete", "heartbeat", "jobs"}),
        ("operate", {each.name for each in FUNCTIONS}),
    ],
)
def test_over_lambda_a_role_gets_its_functions_and_operators_alone_what_changes_queues(
    role: str, functions: set[str], granted: Any
) -> None:
    (statement,) = granted(role, "lambda")
    assert statement["Action"] == "lambda:InvokeFunction"
    begin = "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:"
    assert {*statement["Resource"]} == {f"{begin}osqueue-prod-{each}" for each in functions}


def test_over_lambda_nobody_can_only_read(granted: Any) -> None:
    with pytest.raises(Misconfigured, match="via: whoever invokes functions may change"):
        granted("read", "lambda")


def test_where_the_api_takes_tokens_a_signature_opens_nothing(in_one_stack: Any) -> None:
    def fill(stack: Any, assets: Any) -> None:
        jwt = Jwt(issuer="https://id.example", audience=("jobs",))
        caller = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        jobs = Osqueue(stack, "Jobs", name="prod", settings=DeploymentSettings(jwt=jwt), assets=assets)
        jobs.queue("emails").grant_work(caller)

    with pytest.raises(Misconfigured, match="via: the API takes tokens"):
        in_one_stack(fill)


def test_an_unknown_way_is_refused_with_those_there_are(granted: Any) -> None:
    with pytest.raises(Misconfigured, match="via: 'sqs' is none of http, lambda, bucket"):
        granted("work", "sqs")


def test_a_name_that_no_queue_has_is_refused(in_one_stack: Any) -> None:
    with pytest.raises(Rejected, match=r"queue: .* is not a queue name"):
        in_one_stack(lambda stack, assets: Osqueue.from_name(stack, "Jobs", "prod").queue("*"))


def test_who_gets_an_encrypted_bucket_gets_its_key(granted: Any) -> None:
    keyed = granted("work", "bucket", kms_key=KEY)
    (leave,) = [each for each in keyed if each["Resource"] == [KEY]]
    assert leave["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert [each for each in granted("work", "bucket") if "kms" in str(each["Action"])] == []


# ── The bucket, as grants show it ────────────────────────────────────────────
@pytest.fixture
def gate(granted: Any, policies: Any) -> Callable[..., Any]:
    """A store as a role for the queue ``emails`` shows it."""

    def make(store: base.Store, role: str) -> Any:
        return Gate(store, granted(role, "bucket"), policies)

    return make


def test_in_the_bucket_who_enqueues_and_who_works_have_enough(gate: Any) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    gates = [gate(store, "enqueue"), gate(store, "work")]
    producer, worker = (Queue(each, "emails", machine=clock) for each in gates)
    large = "x" * 10_000
    first = producer.enqueue(large, id="order-1")
    producer.enqueue_many([{"payload": {"n": n}} for n in range(2_000)])
    leases = worker.claim(limit=5)
    worker.heartbeat_many([{"job_id": each.job_id, "token": each.token} for each in leases])
    for each in leases[1:]:
        each.complete(large)
    leases[0].fail("no", retry=False)
    producer.cancel(producer.enqueue(1, id="order-2").job_id)
    assert producer.status(first.job_id).state == worker.status("order-1").state == "failed"
    assert [each.refused for each in gates] == [[], []]


def test_in_the_bucket_who_reads_changes_nothing(gate: Any) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    Queue(store, "emails", machine=clock).enqueue({"n": 1}, id="order-1")
    reading = gate(store, "read")
    seen = Queue(reading, "emails", machine=clock)
    assert seen.stats()["queued"] == 1
    assert seen.status("order-1").state == "queued"
    assert reading.refused == []
    for change in (base.Put("3f9a/emails/0/head", b""), base.Delete(("3f9a/emails/0/bodies/1",))):
        assert isinstance(reading.perform(change), base.Failed)


def test_in_the_bucket_who_operates_does_all_upkeep(gate: Any) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    operator = gate(store, "operate")
    queue = Queue(operator, "emails", machine=clock)
    job = queue.enqueue("x" * 10_000, id="order-1")
    (lease,) = queue.claim()
    lease.complete("x" * 10_000)
    for _ in range(10):
        clock.advance(86_400)
        queue.reap()
    queue.purge([job.job_id])
    queue.configure(archive_payloads=True)
    assert operator.refused == []


@pytest.mark.parametrize("role", ["read", "enqueue", "work", "operate"])
def test_in_the_bucket_no_role_reaches_another_queue(role: str, gate: Any) -> None:
    closed = gate(MemoryStore(), role)
    for key in (
        *("3f9a/emails-2/0/head", "3f9a/letters/0/head", "intents/3f9a/letters/0/1", "ids/letters/00"),
        *(
            "archive/queue=letters/part",
            "archive/queue=emails-2/part",
            "backup/letters/00/1",
            "batches/letters/1",
        ),
    ):
        for request in (base.Get(key), base.Put(key, b""), base.Delete((key,))):
            assert isinstance(closed.perform(request), base.Failed), request


# ── Addresses ────────────────────────────────────────────────────────────────
def test_by_its_name_a_deployment_is_found_without_an_export(in_one_stack: Any, policies: Any) -> None:
    from aws_cdk import CfnOutput

    def fill(stack: Any, assets: Any) -> None:
        jobs = Osqueue.from_name(stack, "Jobs", "prod")
        for via in ("http", "lambda", "bucket"):
            CfnOutput(stack, via, value=jobs.address(via))
        CfnOutput(stack, "bus", value=jobs.event_bus.event_bus_name)

    made = in_one_stack(fill)
    told = {name: policies.plain(each["Value"]) for name, each in made.template["Outputs"].items()}
    assert told["lambda"] == "lambda://osqueue-prod"
    assert told["bus"] == "osqueue-prod"
    assert told["http"].endswith("?region=<AWS::Region>")
    assert "Fn::ImportValue" not in json.dumps(made.template)
    asked = [each["Default"] for each in made.template["Parameters"].values()]
    assert {"/osqueue-prod/endpoint", "/osqueue-prod/store"} <= {*asked}


def test_what_is_looked_up_by_name_is_what_a_deployment_leaves_there(whole: Any, policies: Any) -> None:
    left = {each["Name"]: each["Value"] for each in whole.resources("AWS::SSM::Parameter").values()}
    # For the layer: test_consumers.py.
    assert {*left} == {f"/osqueue-prod/{each}" for each in ("api-id", "endpoint", "layer", "store")}
    (api,) = whole.resources("AWS::ApiGatewayV2::Api")
    assert left["/osqueue-prod/api-id"] == {"Ref": api}
    assert left["/osqueue-prod/endpoint"] == {"Fn::GetAtt": [api, "ApiEndpoint"]}
    assert (
        policies.plain(left["/osqueue-prod/store"]) == "s3://osqueue-prod-<AWS::AccountId>-<AWS::Region>-an"
    )


def test_a_deployment_is_a_construct_that_can_be_passed_on() -> None:
    assert issubclass(Osqueue, Deployment)
    assert issubclass(Deployment, Construct)
