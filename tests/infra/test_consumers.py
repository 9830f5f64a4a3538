"""Push consumers in somebody's own stack: what a function gets, who may invoke it, and how it is attached."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from osqueue import Pacer, Queue
from osqueue.aws import consumer
from osqueue.commit import news
from osqueue.contract.functions import FUNCTIONS
from osqueue.limits import INLINE_BYTES_MAX
from osqueue.stores import base
from osqueue_cdk import Misconfigured, Osqueue
from tests.support.consumers import Consumed
from tests.support.gate import Gate

KEY = "arn:aws:kms:eu-west-1:123456789012:key/ab12-cd34"
TAG = "osqueue-consumer"


def function_in(stack: Any, title: str = "Mailer", **given: Any) -> lambda_.Function:
    """A function that the layer fits, with a role of its own."""
    role = iam.Role(stack, f"{title}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    wanted: dict[str, Any] = {
        "runtime": lambda_.Runtime.PYTHON_3_14,
        "architecture": lambda_.Architecture.ARM_64,
        "timeout": Duration.minutes(5),
        "handler": "index.handler",
        "code": lambda_.Code.from_inline("def handler(event, context): ..."),
        "role": role,
        **given,
    }
    return lambda_.Function(stack, title, **wanted)


@pytest.fixture(scope="module")
def attached(in_one_stack: Any) -> Any:
    """A function for one queue, and the alias of another for two, of a deployment that is known by its name."""

    def fill(stack: Any, assets: Any) -> None:
        jobs = Osqueue.from_name(stack, "Jobs", "prod", kms_key=KEY)
        jobs.queue("emails").add_consumer(
            "mailer",
            function_in(stack),
            batch=5,
            max_concurrency=20,
            window=Duration.millis(1_500),
            kinds=["welcome", "bye"],
            lease=Duration.minutes(2),
        )
        other = function_in(stack, "Printer")
        alias = lambda_.Alias(stack, "Live", alias_name="live", version=other.current_version)
        for queue in ("letters", "cards"):
            jobs.queue(queue).add_consumer("printer", alias)

    return in_one_stack(fill)


@pytest.fixture(scope="module")
def whole(in_one_stack: Any) -> Any:
    """A deployment and its consumer in one stack."""

    def fill(stack: Any, assets: Any) -> None:
        jobs = Osqueue(stack, "Jobs", name="prod", assets=assets)
        jobs.queue("emails").add_consumer("mailer", function_in(stack))

    return in_one_stack(fill)


def function_of(made: Any, title: str) -> dict[str, Any]:
    (found,) = [
        each for name, each in made.resources("AWS::Lambda::Function").items() if name.startswith(title)
    ]
    return dict(found)


def resource_of(made: Any, queue: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The resource that attaches a queue's consumer, and its properties."""
    found = [
        each
        for each in made.template["Resources"].values()
        if each["Type"] == "Custom::OsqueueConsumer" and each["Properties"]["Queue"] == queue
    ]
    (resource,) = found
    return resource, resource["Properties"]


def statements_of(made: Any, title: str, policies: Any) -> list[dict[str, Any]]:
    found = made.resources("AWS::IAM::Policy").items()
    (policy,) = [each for name, each in found if name.startswith(f"{title}Role")]
    statements: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return statements


# ── What the function gets ───────────────────────────────────────────────────
@pytest.mark.parametrize("title", ["Mailer", "Printer"])
def test_a_consumer_knows_its_store_may_wake_others_and_has_the_layer(
    title: str, attached: Any, policies: Any
) -> None:
    made = function_of(attached, title)
    variables = {name: policies.plain(value) for name, value in made["Environment"]["Variables"].items()}
    store = made["Environment"]["Variables"]["OSQUEUE_STORE"]["Ref"]
    assert attached.template["Parameters"][store]["Default"] == "/osqueue-prod/store"
    assert variables == {
        "OSQUEUE_STORE": f"<{store}>",
        "OSQUEUE_WAKES": "lambda",
        "OSQUEUE_SERVICE": "osqueue-prod",
        "OSQUEUE_EVENT_BUS": "osqueue-prod",
    }
    (layer,) = made["Layers"]
    assert attached.template["Parameters"][layer["Ref"]]["Default"] == "/osqueue-prod/layer"
    assert {"Key": TAG, "Value": "prod"} in made["Tags"]
    assert made["RecursiveLoop"] == "Allow"


def test_a_wake_waits_a_minute_at_most_and_is_not_repeated(attached: Any) -> None:
    """Also where it is invoked by an alias, which has settings of its own."""
    found = attached.resources("AWS::Lambda::EventInvokeConfig").values()
    assert len(found) == 2
    assert {(each["MaximumEventAgeInSeconds"], each["MaximumRetryAttempts"]) for each in found} == {(60, 0)}
    assert [each for each in found if "DestinationConfig" in each] == []
    assert sorted("Fn::Select" in json.dumps(each["Qualifier"]) for each in found) == [False, True]


def test_the_layer_that_is_looked_up_is_the_one_that_a_deployment_leaves_there(whole: Any) -> None:
    left = {each["Name"]: each["Value"] for each in whole.resources("AWS::SSM::Parameter").values()}
    (version,) = whole.resources("AWS::Lambda::LayerVersion")
    assert left["/osqueue-prod/layer"] == {"Ref": version}
    assert function_of(whole, "Mailer")["Layers"] == [{"Ref": version}]


# ── How it is attached ───────────────────────────────────────────────────────
def test_the_deployment_attaches_it_with_its_settings(attached: Any, policies: Any) -> None:
    _, properties = resource_of(attached, "emails")
    assert properties["Consumer"] == "mailer"
    begin = "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:"
    assert policies.plain(properties["ServiceToken"]) == f"{begin}osqueue-prod-queues"
    assert properties["ServiceTimeout"] == "300"
    settings = json.loads(re.sub(r"<\[.*?\]>", "arn", policies.plain(properties["Settings"])))
    assert settings == {
        "target": "arn",
        "kinds": ["welcome", "bye"],
        "batch": 5,
        "max_concurrency": 20,
        "window": 1.5,
        "lease": 120,
    }


def test_it_is_attached_once_it_can_work_and_detached_before_it_goes(attached: Any, whole: Any) -> None:
    """CloudFormation makes what a resource depends on before it, and deletes it after."""
    kinds = attached.template["Resources"]
    for queue in ("emails", "letters"):
        resource, _ = resource_of(attached, queue)
        needed = {kinds[each]["Type"] for each in resource["DependsOn"]}
        assert {"AWS::IAM::Policy", "AWS::Lambda::EventInvokeConfig"} <= needed
    resource, _ = resource_of(whole, "emails")
    needed = {whole.template["Resources"][each].get("Type") for each in resource["DependsOn"]}
    assert {"AWS::Lambda::Function", "AWS::IAM::Policy"} <= needed
    names = {
        whole.template["Resources"][each]["Properties"].get("FunctionName")
        for each in resource["DependsOn"]
        if whole.template["Resources"][each]["Type"] == "AWS::Lambda::Function"
    }
    assert "osqueue-prod-queues" in names


def test_a_consumer_that_is_moved_in_the_tree_stays_the_same_resource(in_one_stack: Any) -> None:
    """Else CloudFormation would attach it under its new id, and then detach it under its old one."""

    def ids(title: str) -> list[str]:
        def fill(stack: Any, assets: Any) -> None:
            jobs = Osqueue.from_name(stack, title, "prod")
            jobs.queue("emails").add_consumer("mailer", function_in(stack))

        return list(in_one_stack(fill).resources("Custom::OsqueueConsumer"))

    assert ids("Jobs") == ids("Elsewhere")


def test_templates_with_consumers_are_ones_that_cloudformation_takes(
    attached: Any, whole: Any, lint: Any
) -> None:
    assert lint([attached.path, whole.path]) == []


# ── Rights ───────────────────────────────────────────────────────────────────
def woken_by(statements: list[dict[str, Any]], tag: str | None, policies: Any) -> bool:
    """Whether these let a function be invoked that carries the tag."""
    context = {} if tag is None else {f"aws:ResourceTag/{TAG}": tag}
    arn = "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:mailer:live"
    return bool(policies.allowed(statements, "lambda:InvokeFunction", arn, context))


def test_whoever_commits_may_invoke_the_consumers_of_its_deployment_and_no_other_function(
    whole: Any, attached: Any, policies: Any
) -> None:
    roles = [statements_of(whole, f"JobsFunctions{each.name.capitalize()}", policies) for each in FUNCTIONS]
    roles += [statements_of(attached, each, policies) for each in ("Mailer", "Printer")]
    for statements in roles:
        assert woken_by(statements, "prod", policies)
        assert not woken_by(statements, "dev", policies)
        assert not woken_by(statements, None, policies)
    names = [each.name for each in FUNCTIONS]
    told = {
        each["Environment"]["Variables"].get("OSQUEUE_WAKES")
        for each in whole.resources("AWS::Lambda::Function").values()
    }
    assert (len(names), told) == (7, {"lambda"})


def test_who_commits_in_the_bucket_gets_leave_to_wake_by_a_grant(in_one_stack: Any, policies: Any) -> None:
    def fill(stack: Any, assets: Any) -> None:
        task = iam.Role(stack, "TaskRole", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
        Osqueue.from_name(stack, "Jobs", "prod").grant_wake(task)

    (statement,) = statements_of(in_one_stack(fill), "Task", policies)
    assert woken_by([statement], "prod", policies)
    assert not woken_by([statement], None, policies)


def test_a_consumer_of_an_encrypted_bucket_may_use_its_key(attached: Any, policies: Any) -> None:
    keyed = [each for each in statements_of(attached, "Mailer", policies) if each["Resource"] == KEY]
    assert [each["Action"] for each in keyed] == [["kms:Decrypt", "kms:GenerateDataKey"]]


REST = news.REST_MS // 1000 + 1  # seconds


def test_its_rights_in_the_bucket_are_enough_and_none_is_left_over(attached: Any, policies: Any) -> None:
    statements = statements_of(attached, "Mailer", policies)
    mail = Consumed(batch=3)
    mail.store.look_pace = base.Store.look_pace  # where looks cost money, ends of rests are reported
    mail.store.perform(base.PutIfAbsent(news.NEWS, news.encoded(())))
    gate = Gate(mail.store, statements, policies)
    pacer = Pacer(mail.store, "post", machine=mail.clock)
    pacer.create(interval=0.001, burst=100)
    mail.q.configure(limiter="post")

    def opened() -> Any:
        return Queue(gate, "emails", waker=mail.waker, machine=mail.clock)

    @consumer(batch=3)
    def handler(job: Any) -> Any:
        if job.payload == "bad":
            raise ValueError("no")
        return "x" * (2 * INLINE_BYTES_MAX)

    for n in range(12):
        mail.q.enqueue("x" * (2 * INLINE_BYTES_MAX) if n % 2 else "bad", max_attempts=2)
    mail.q.enqueue_many([{"payload": n} for n in range(2_000)])
    gate.rival = lambda: mail.q.enqueue("late")  # so that it announces, combines and cleans up
    for _ in range(50):
        if not mail.waker.wakes:
            break
        mail.deliver(handler, queue=opened())
        gate.rival = lambda: mail.q.enqueue("late")
    gate.rival = None
    for _ in range(2):  # it learns that news are wanted, then it reports the end of a rest
        mail.q.enqueue("late")
        mail.clock.advance(REST)
        mail.deliver(handler, queue=opened())
    assert gate.refused == []
    granted = {
        policies.plain(one)
        for each in statements
        if "s3:" in json.dumps(each["Action"])
        for one in policies.listed(each["Resource"])
    }
    nobody_else_borrowed = {"arn:aws:s3:::bucket/intents/????/_limits/*"}
    assert granted == {one for _, one in gate.used} | nobody_else_borrowed
    for key in ("3f9a/letters/0/head", "ids/emails/00", "archive/queue=emails/part", "queues/emails"):
        assert isinstance(gate.perform(base.Get(key)), base.Failed)


# ── Refusals ─────────────────────────────────────────────────────────────────
Attach = Callable[..., None]


@pytest.fixture
def attach(in_one_stack: Any) -> Attach:
    """Attaches a function that is made so."""

    def run(options: dict[str, Any], given: dict[str, Any], name: str = "mailer") -> None:
        def fill(stack: Any, assets: Any) -> None:
            jobs = Osqueue.from_name(stack, "Jobs", "prod")
            jobs.queue("emails").add_consumer(name, function_in(stack, **given), **options)

        in_one_stack(fill)

    return run


@pytest.mark.parametrize(
    ("options", "given", "said"),
    [
        ({"batch": 0}, {}, "batch"),
        ({"max_concurrency": 1_001}, {}, "max_concurrency"),
        ({"window": Duration.minutes(6)}, {}, "window"),
        ({"lease": Duration.seconds(0)}, {}, "lease"),
        ({"kinds": "welcome"}, {}, "kinds"),
        ({}, {"timeout": Duration.seconds(19)}, "function: its timeout is 19 s"),
        ({}, {"timeout": None}, "function: its timeout is 3 s"),
        ({}, {"runtime": lambda_.Runtime.PYTHON_3_13}, "function: the layer is for python3.14 .*layer=False"),
        ({}, {"architecture": lambda_.Architecture.X86_64}, "function: the layer is for .* on x86_64"),
        ({}, {"retry_attempts": 2}, "function: asynchronous invocations of a consumer wait 60 s"),
        ({}, {"max_event_age": Duration.hours(1)}, "function: asynchronous invocations"),
        ({}, {"recursive_loop": lambda_.RecursiveLoop.TERMINATE}, "function: its recursive_loop"),
    ],
)
def test_what_cannot_be_attached_is_refused_by_its_field(
    options: dict[str, Any], given: dict[str, Any], said: str, attach: Attach
) -> None:
    with pytest.raises(Misconfigured, match=said):
        attach(options, given)


def test_a_function_that_has_what_a_consumer_needs_is_taken_as_it_is(attach: Attach) -> None:
    settings = {"max_event_age": Duration.minutes(1), "retry_attempts": 0}
    attach({"layer": False}, {**settings, "architecture": lambda_.Architecture.X86_64})


def refused(in_one_stack: Any, fill: Callable[[Any, Any], None]) -> str:
    with pytest.raises(Misconfigured) as told:
        in_one_stack(fill)
    return str(told.value)


def test_a_function_that_is_defined_elsewhere_is_attached_there(in_one_stack: Any) -> None:
    def imported(stack: Any, assets: Any) -> None:
        function = lambda_.Function.from_function_name(stack, "Mailer", "mailer")
        Osqueue.from_name(stack, "Jobs", "prod").queue("emails").add_consumer("mailer", function)

    def another(stack: Any, assets: Any) -> None:
        beside = Stack(stack.node.scope, "Beside")
        Osqueue.from_name(beside, "Jobs", "prod").queue("emails").add_consumer("mailer", function_in(stack))

    assert "add_consumer in the stack that defines it" in refused(in_one_stack, imported)
    assert "of another stack than the deployment" in refused(in_one_stack, another)


def test_a_name_is_given_once_in_a_queue(in_one_stack: Any) -> None:
    def fill(stack: Any, assets: Any) -> None:
        emails = Osqueue.from_name(stack, "Jobs", "prod").queue("emails")
        emails.add_consumer("mailer", function_in(stack))
        emails.add_consumer("mailer", function_in(stack, "Other"))

    assert "name: queue 'emails' has a consumer 'mailer' already" in refused(in_one_stack, fill)


def test_a_function_with_two_queues_says_the_same_of_its_environment_for_both(in_one_stack: Any) -> None:
    def fill(stack: Any, assets: Any) -> None:
        function, jobs = function_in(stack), Osqueue.from_name(stack, "Jobs", "prod")
        jobs.queue("emails").add_consumer("mailer", function)
        jobs.queue("letters").add_consumer("mailer", function)
        jobs.queue("parcels").add_consumer("mailer", function, events=False)

    assert "another layer= or events=" in refused(in_one_stack, fill)


def test_a_function_consumes_queues_of_one_deployment(in_one_stack: Any) -> None:
    def fill(stack: Any, assets: Any) -> None:
        function = function_in(stack)
        for name in ("prod", "dev"):
            Osqueue.from_name(stack, name.title(), name).queue("emails").add_consumer("mailer", function)

    assert "consumes queues of the deployment 'prod'" in refused(in_one_stack, fill)
