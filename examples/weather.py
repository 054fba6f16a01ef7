"""The tool of agent.yaml.example."""

WEATHER = {
    "paris": {"sky": "sunny", "degrees": 21},
    "oslo": {"sky": "snowy", "degrees": -4},
}


def get_weather(city: str) -> dict[str, str | int]:
    """Look up the current weather of a city.

    Args:
        city: Name of the city.
    """
    found = WEATHER.get(city.casefold())
    if found is None:
        raise LookupError(f"there is no weather station in {city!r}")
    return {"city": city, **found}
