"""How long to search: bounded and the same each time by default, so that what is red was red before
the change too; long and by chance with `--hypothesis-profile=long`."""

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

settings.register_profile(
    "ci", max_examples=60, deadline=None, suppress_health_check=SLOW, derandomize=True
)
settings.register_profile("long", max_examples=3000, deadline=None, suppress_health_check=SLOW)


def pytest_configure(config):
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("ci")
