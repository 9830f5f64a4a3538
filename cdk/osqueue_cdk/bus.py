"""The event bus: told of every transition of every job, for whoever wants to listen."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from constructs import Construct

from .names import Names
from .settings import DeploymentSettings


class Bus(Construct):
    """A bus of its own, so that rules on it see nothing else; with an archive where the settings ask for it."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, settings: DeploymentSettings
    ) -> None:
        super().__init__(scope, construct_id)
        names = Names(self, name)
        self.bus = events.EventBus(self, "Bus", event_bus_name=names.bus)
        if settings.events_archive_days is not None:
            self.bus.archive(
                "Archive",
                archive_name=names.bus,
                description="What the bus was told, to be replayed",
                event_pattern=events.EventPattern(source=["osqueue"]),
                retention=Duration.days(settings.events_archive_days),
            )
