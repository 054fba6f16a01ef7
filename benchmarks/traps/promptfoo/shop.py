"""The agent of `holodeck/shop.py` as a provider."""


def call_api(prompt: str, _options: object, _context: object) -> dict[str, object]:
    if prompt == "raise":
        raise RuntimeError("the shop is closed")
    return {"output": "You can return it within 14 days."}
