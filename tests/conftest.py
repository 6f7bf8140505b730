"""Settings of every test run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("nest", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nest")
