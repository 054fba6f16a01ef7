"""The names of secrets: of variables, parameters of URLs, options of programs, keys of files."""

import re
from functools import lru_cache

UNMISTAKABLE = (
    r"(?:x[_-])?api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret|"
    r"secret[_-]?(?:access[_-]?)?key|account[_-]?key|shared[_-]?access[_-]?(?:key|signature)|"
    r"password|passwd"
)
"""Part of a pattern: names whose value is secret wherever they stand, in prose, too."""
_WORDS = re.compile(
    # anywhere in the name
    r"secret|passw(?:or)?d|passphrase|api_?key|credential|cookie|webhook|conn(?:ection)?_?str|"
    # its last words; of keys and tokens also further ones, such as OPENAI_API_KEY_2
    r"(?<!cache_)(?<!sort_)(?<!public_)(?<!primary_)(?<!foreign_)(?<!partition_)key(?:_|\d|$)|"
    r"token(?:_|\d|$)|(?:signature|shared_?access_?signature)$|"
    r"(?:^|_)(?:auth|authorization|bearer|creds?|dsn|jwt|pass|pat|pw|pwd|sas|sig|signing|tok)$|"
    # the whole name
    r"^(?:access|code|private)$"
)
_PLACE = re.compile(r"_(?:file|path|dir|home|url|endpoint)$")
_SECRET_PLACE = re.compile(r"webhook|conn(?:ection)?_?str")
_ORDINARY_IN_DATA = re.compile(
    r"access|code|pass|pat|private|pw|sig|(?:.*_)?token_\D.*|"
    r"(?!.*(?:access|account|api|auth|client|encryption|private|secret|service|signing|subscription)_?key)"
    r".*key(?:_.*|\d.*)?"
)
"""What is an ordinary key of data, such as an answer of a tool, and word of prose."""
_SHELLS_OWN = frozenset({"PWD", "OLDPWD"})
"""Variables with the working folder."""
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def names_a_secret(name: str) -> bool:
    """Whether a variable, parameter, option or key of this name holds a secret."""
    words = _BETWEEN_WORDS.sub("_", name.strip("-_")).lower()
    if name in _SHELLS_OWN:
        return False
    if _PLACE.search(words) and not _SECRET_PLACE.search(words):
        return False
    return bool(_WORDS.search(words))


@lru_cache(maxsize=1024)
def names_a_secret_in_data(name: str) -> bool:
    """Whether a key of data, or a word before a colon, names a secret."""
    words = _BETWEEN_WORDS.sub("_", name.strip("-_")).lower()
    return names_a_secret(name) and _ORDINARY_IN_DATA.fullmatch(words) is None
