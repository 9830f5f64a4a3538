"""The event bus: told of every transition of every job, for whoever wants to listen."""

from __future__ import annotations

from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from .config import Config


class BusStack(Stack):
    """A bus of its own, so that rules on it see nothing else; with an archive when the configuration asks for it."""

    def __init__(self, scope: Construct, config: Config, place: Environment) -> None:
        super().__init__(
            scope,
            f"{config.prefix}-bus",
            env=place,
            description=f"osqueue {config.name}: the bus that is told of every transition",
            termination_protection=config.protected,
        )
        self.bus = events.EventBus(self, "Bus", event_bus_name=config.prefix)
        if config.events_archive_days is not None:
            self.bus.archive(
                "Archive",
                archive_name=config.prefix,
                description="What the bus was told, to be replayed",
                event_pattern=events.EventPattern(source=["osqueue"]),
                retention=Duration.days(config.events_archive_days),
            )
