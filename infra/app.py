"""The CDK app: ``cdk deploy --all -c env=dev`` runs this, with the Python of .venv (cdk.json).

One environment is one deployment of ``osqueue_cdk``, its parts spread over stacks: what keeps state is in one that is
seldom touched, and what fails to deploy is rolled back alone. They find each other by their names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aws_cdk import App, CfnOutput, Environment, Stack, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from osqueue_cdk import (
    Assets,
    Bus,
    Deployment,
    Functions,
    HttpApi,
    Misconfigured,
    Operations,
    ReaperSchedule,
    Storage,
    VpcEndpoints,
)
from osqueue_cdk.functions import named_targets
from osqueue_cdk.names import Names

from . import bundle, layers
from .config import Config, environments, load
from .pipeline import PipelineStack
from .pipeline_alarms import pipeline_alarms

HANDLERS = layers.ROOT / "functions"
ONLY = "Default"  # the id of what a stack is for: it leaves no trace in the names of resources


def add_stacks(app: App, config: Config, layer: Path, jobs: Path | None) -> None:
    """The stacks of one environment, in the order in which they need each other; the Spark jobs where it has some."""
    Validations.of(app).add_plugins(
        AwsSolutionsChecks(app)
    )  # a finding that is not acknowledged ends the synthesis
    Tags.of(app).add("osqueue", config.name)
    place = Environment(account=config.account, region=config.region)

    def stack(duty: str, what: str, *after: Stack) -> Stack:
        made = Stack(
            app,
            f"{config.prefix}-{duty}",
            env=place,
            description=f"osqueue {config.name}: {what}",
            termination_protection=config.protected,
        )
        for each in after:
            made.add_stack_dependency(each)
        return made

    name = config.name
    storage = stack("storage", "the bucket that all queues live in")
    Storage(storage, ONLY, name=name, settings=config)
    address = Names(storage, name, config.express_zone).store
    CfnOutput(storage, "Address", value=address, description="what Queue.connect takes")
    needed = [storage]
    if config.events:
        needed.append(stack("bus", "the bus that is told of every transition"))
        Bus(needed[-1], ONLY, name=name, settings=config)
    functions = stack("functions", "the Lambda functions, their layer and their roles", *needed)
    Functions(functions, ONLY, name=name, settings=config, assets=Assets(layer, HANDLERS))
    api = stack("api", "the HTTP API", functions)
    _tell_addresses(
        api, HttpApi(api, ONLY, name=name, settings=config, functions=named_targets(api, name, config))
    )
    schedule = stack("schedule", "the schedule of the reaper", functions)
    ReaperSchedule(schedule, ONLY, name=name, functions=named_targets(schedule, name, config))
    if config.endpoints is not None:
        VpcEndpoints(stack("endpoints", "ways from a VPC"), ONLY, settings=config)
    watched = [api]
    if jobs is not None:
        watched.append(PipelineStack(app, config, place, jobs))
        watched[-1].add_stack_dependency(storage)
    operations = stack("operations", "alarms and the dashboard", *watched)
    Operations(
        operations,
        ONLY,
        name=name,
        settings=config,
        api_id=Deployment(operations, "Watched", name=name).api_id,
        more=pipeline_alarms(operations, config) if jobs is not None else (),
    )


def _tell_addresses(stack: Stack, api: HttpApi) -> None:
    CfnOutput(stack, "Endpoint", value=api.endpoint, description="Queue.connect(…) takes this address")
    if api.domain_name is not None:
        CfnOutput(
            stack,
            "DomainTarget",
            value=api.domain_name.attr_regional_domain_name,
            description=f"Where a CNAME record of {api.domain_name.domain_name} has to point",
        )


def main() -> None:
    app = App()
    try:
        config = load(app.node.try_get_context("env"), environments())
        # Always, so that what is deployed is never old; the same bytes are the same asset.
        layer = layers.build().path
        jobs = bundle.build().path if config.pipeline is not None else None
    except (Misconfigured, layers.Unbuildable) as error:
        sys.exit(f"error: {error}")
    add_stacks(app, config, layer, jobs)
    app.synth()


if __name__ == "__main__":
    main()
