"""The tool of agent.yaml.example."""

WEATHER = {"paris": ("sunny", 21), "oslo": ("snowy", -4)}


def get_weather(city: str) -> str:
    """Look up the current weather of a city.

    Args:
        city: Name of the city.
    """
    found = WEATHER.get(city.casefold())
    if found is None:
        raise LookupError(f"there is no weather station in {city!r}")
    sky, degrees = found
    return f"It is {sky} in {city}, {degrees} degrees."
