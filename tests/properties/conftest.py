"""How long to search: bounded by default, long with `--hypothesis-profile=long`."""

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=SLOW)
settings.register_profile("long", max_examples=3000, deadline=None, suppress_health_check=SLOW)


def pytest_configure(config):
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("ci")
