"""osqueue in your own AWS CDK app: a deployment, and who may use its queues.

    from osqueue_cdk import Osqueue

    jobs = Osqueue(self, "Jobs", name="prod")
    jobs.queue("emails").grant_enqueue(web_function)

``Osqueue`` is all of a deployment in one stack. ``Storage``, ``Bus``, ``Functions``, ``HttpApi``, ``ReaperSchedule``,
``VpcEndpoints`` and ``Operations`` are its parts, for whoever spreads them over several.
"""

from __future__ import annotations

from .alarms import AlarmSpec
from .api import HttpApi
from .assets import Assets
from .bus import Bus
from .deployment import Deployment, Osqueue
from .endpoints import VpcEndpoints
from .functions import Functions
from .grants import DeployedQueue
from .operations import Operations
from .schedule import ReaperSchedule
from .settings import (
    Alarms,
    ArchiveTiering,
    Canary,
    Cors,
    DeploymentSettings,
    Domain,
    Endpoints,
    Jwt,
    Misconfigured,
    RequestLimit,
)
from .storage import Storage

__all__ = (
    "AlarmSpec",
    "Alarms",
    "ArchiveTiering",
    "Assets",
    "Bus",
    "Canary",
    "Cors",
    "DeployedQueue",
    "Deployment",
    "DeploymentSettings",
    "Domain",
    "Endpoints",
    "Functions",
    "HttpApi",
    "Jwt",
    "Misconfigured",
    "Operations",
    "Osqueue",
    "ReaperSchedule",
    "RequestLimit",
    "Storage",
    "VpcEndpoints",
)
