"""The environments that can be deployed: ``cdk deploy -c env=dev``. What each entry may say: ``config.Config``.

What is left out has its default there. Add an environment by adding an entry: here, or in ``environments.local.json``
beside ``cdk.json`` where it does not belong into the repository.
"""

from __future__ import annotations

from typing import Any

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "dev": {
        "log_level": "DEBUG",
        "log_days": 7,
        "throttle": {"rate": 50, "burst": 100},
    },
    "staging": {
        "log_days": 30,
        "events_archive_days": 7,
        "pipeline": {},  # on AWS it has never run: prod may follow once it has here (docs/deploy.md)
    },
    "prod": {
        "log_days": 90,
        "throttle": {"rate": 1_000, "burst": 2_000},
        "events_archive_days": 30,
        "protected": True,  # alarms have to reach somebody, whom environments.local.json names
    },
}
