"""An agent that is wrong, or fails."""


def answer(message: str) -> str:
    if message == "raise":
        raise RuntimeError("the shop is closed")
    return "You can return it within 14 days."
