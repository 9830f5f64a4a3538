"""The CDK app: ``cdk deploy --all -c env=dev`` runs this, with the Python of .venv (cdk.json)."""

from __future__ import annotations

import sys
from pathlib import Path

from aws_cdk import App, Environment, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from . import bundle, layers
from .api import ApiStack
from .bus import BusStack
from .config import Config, Misconfigured, environments, load
from .functions import FunctionsStack
from .operations import OperationsStack
from .pipeline import PipelineStack
from .schedule import ScheduleStack
from .storage import StorageStack


def add_stacks(app: App, config: Config, layer: Path, jobs: Path | None) -> None:
    """The stacks of one environment, in the order in which they need each other; the Spark jobs where it has some."""
    Validations.of(app).add_plugins(
        AwsSolutionsChecks(app)
    )  # a finding that is not acknowledged ends the synthesis
    Tags.of(app).add("osqueue", config.name)
    place = Environment(account=config.account, region=config.region)
    storage = StorageStack(app, config, place)
    bus = BusStack(app, config, place).bus if config.events else None
    functions = FunctionsStack(app, config, place, storage, bus, layer).functions
    ApiStack(app, config, place, functions)
    ScheduleStack(app, config, place, functions)
    pipeline = PipelineStack(app, config, place, storage, jobs) if jobs is not None else None
    OperationsStack(app, config, place, functions, pipeline)


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
