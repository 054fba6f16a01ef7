"""What secrets look like: their names, and the formats of the tokens and keys of services.

The formats are those that services and secret scanners document, as far as a prefix or another
fixed part tells them from ordinary text. Keys without one, such as those of Mistral and Cohere, are
known by the name of their variable instead.
"""

import re
from collections.abc import Callable
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


_HEX = "[0-9a-f]"
_ID = "[A-Za-z0-9]"
_URL = r"[\w-]"
_DIGIT = r"(?=\D{0,40}\d)"
"""Somewhere near; without a bound, a long text would take minutes."""

FORMATS = {
    # models
    "Anthropic, OpenAI, OpenRouter, DeepSeek, Langfuse": rf"sk-{_URL}{{12,}}",
    "Cerebras": rf"csk-{_ID}{{40,}}",
    "ElevenLabs": rf"sk_{_HEX}{{48}}",
    "Fireworks": rf"fw_{_DIGIT}{_ID}{{22,}}",
    "Google": rf"AIza{_URL}{{35}}|AQ\.Ab{_URL}{{30,}}|ya29\.{_URL}{{20,}}|GOCSPX-{_URL}{{28}}",
    "Groq": rf"gsk_{_ID}{{32,}}",
    "Hugging Face": rf"hf_{_ID}{{24,}}|api_org_{_ID}{{34}}",
    "Jina": rf"jina_{_URL}{{40,}}",
    "LangSmith": rf"lsv2_(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}",
    "NVIDIA": rf"nvapi-{_URL}{{40,}}",
    "Perplexity": rf"pplx-{_ID}{{32,}}",
    "Pinecone": r"pcsk_\w{40,}",
    "Replicate": rf"r8_{_ID}{{37}}",
    "Tavily": rf"tvly-{_DIGIT}{_URL}{{20,}}",
    "Together": rf"tgp_v1_{_URL}{{40,}}",
    "Voyage": rf"pa-{_DIGIT}(?=[^A-Z]{{0,40}}[A-Z]){_URL}{{43}}",
    "xAI": rf"xai-{_ID}{{40,}}",
    # clouds
    "AWS": r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|ABSK[\w+/]{40,}={0,2}"
    r"|bedrock-api-key-[\w+/-]{20,}",
    "Alibaba": rf"LTAI{_ID}{{12,24}}(?!{_ID})",
    "Azure": rf"{_ID}{{52}}JQQJ9{_ID}{{27}}(?:==)?|{_ID}{{76}}AZDO{_ID}{{4}}"
    r"|[\w.~-]{3}\dQ~[\w.~-]{31,34}",
    "Cloudflare": rf"v1\.0-{_HEX}{{24}}-{_HEX}{{146}}|cf(?:ut|at|k)_{_ID}{{40,}}",
    "Databricks": rf"dapi{_HEX}{{32}}(?:-\d)?",
    "DigitalOcean": rf"do[opr]_v1_{_HEX}{{40,}}",
    "Fly.io": rf"fo1_{_URL}{{43}}|fm[12][ar]?_[\w+/=-]{{60,}}",
    "Heroku": rf"HRKU-AA{_URL}{{58}}",
    "Netlify": rf"nfp_{_ID}{{36}}",
    "OpenShift": rf"sha256~{_URL}{{43}}",
    "Supabase": rf"sbp_{_HEX}{{40}}|sb_secret_{_URL}{{20,}}",
    "Vercel": rf"vc[pkair]_{_ID}{{50,}}",
    # code and packages
    "Artifactory": rf"AKCp{_ID}{{69}}|cmVmd{_ID}{{59}}",
    "Atlassian": rf"AT(?:ATT3|CTT3|BB){_URL}{{24,}}=*\w*",
    "Clojars": r"CLOJARS_[0-9a-z]{60}",
    "crates.io": rf"cio{_ID}{{32}}(?!{_ID})",
    "Docker": rf"dckr_[po]at_{_URL}{{20,}}",
    "GitHub": rf"gh[pousr]_{_ID}{{16,}}|github_pat_\w{{20,}}",
    "GitLab": rf"gl(?:pat|dt|rt|rtr|ptt|ft|oas|cbt|agent|soat|imt|ffct)-[\w.-]{{16,}}"
    rf"|GR1348941{_URL}{{20}}",
    "npm": rf"npm_{_ID}{{30,}}",
    "NuGet": r"oy2[a-z0-9]{43}",
    "PyPI": rf"pypi-{_URL}{{50,}}",
    "RubyGems": rf"rubygems_{_HEX}{{48}}",
    "Sourcegraph": rf"sgp_(?:{_HEX}{{16}}_|local_)?{_HEX}{{40}}",
    # infrastructure
    "1Password": r"ops_eyJ[\w+/=-]{100,}",
    "Age": r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
    "Doppler": r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}",
    "Dynatrace": rf"dt0c01\.{_ID}{{24}}\.{_ID}{{64}}",
    "Grafana": rf"glc_[\w+/=-]{{32,}}|glsa_{_ID}{{32}}_{_HEX}{{8}}",
    "HashiCorp": rf"{_ID}{{14}}\.atlasv1\.{_URL}{{60,}}|hv[sbr]\.{_URL}{{24,}}",
    "New Relic": r"NRAK-[A-Z0-9]{27}",
    "PlanetScale": r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,}",
    "Postman": rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}",
    "Prefect": rf"pn[ub]_{_ID}{{36}}",
    "Pulumi": rf"pul-{_HEX}{{40}}",
    "Sentry": r"sntry[su]_[\w+/=-]{40,}",
    # messages, payments, offices
    "Airtable": rf"pat{_ID}{{14}}\.{_HEX}{{64}}",
    "Brevo": rf"xkeysib-{_HEX}{{64}}-{_ID}{{16}}",
    "Contentful": rf"CFPAT-{_URL}{{43}}",
    "Discord": rf"[MNO]{_URL}{{23,27}}\.{_URL}{{6}}\.{_URL}{{27,38}}",
    "Facebook": rf"EAA[A-Z]{_ID}{{60,}}",
    "Figma": rf"fig[dou]r?_{_URL}{{40,}}",
    "HubSpot": rf"pat-(?:na|eu|ap)\d-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "Linear": rf"lin_(?:api|oauth)_{_ID}{{40,}}",
    "Mailchimp": rf"{_HEX}{{32}}-us\d{{1,2}}",
    "Mailgun": rf"key-{_HEX}{{32}}",
    "Mapbox": rf"sk\.eyJ{_URL}{{40,}}\.{_URL}{{20,}}",
    "Notion": rf"ntn_{_ID}{{40,}}|secret_{_ID}{{43}}",
    "PayPal": rf"access_token\$production\$[0-9a-z]{{16}}\${_HEX}{{32}}",
    "PostHog": rf"ph[xs]_{_URL}{{40,}}",
    "SendGrid": rf"SG\.{_URL}{{16,}}\.{_URL}{{16,}}",
    "Shopify": r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}",
    "Slack": rf"xox[abdeoprs](?:\.xox[bp])?-[\w%-]{{10,}}|xapp-\d-{_URL}{{20,}}",
    "Square": rf"sq0[a-z]{{3}}-{_URL}{{22,}}|EAAA{_URL}{{56,}}",
    "Stripe": rf"[rs]k_(?:live|test|prod)_{_ID}{{16,}}|whsec_[\w+/=]{{16,}}",
    "Telegram": rf"\d{{8,10}}:A{_URL}{{34}}",
    "Twilio": rf"SK{_HEX}{{32}}",
    "Typeform": rf"tfp_{_URL}{{40,}}",
    # of no service
    "JSON Web Token": rf"eyJ{_URL}{{8,400}}\.eyJ{_URL}{{8,4000}}\.{_URL}+",
}
"""Service → pattern of its tokens."""

_RUN = re.compile(r"[\w.:~$%+/=-]{15,}", re.ASCII)
"""What may hold a token. Few texts have such a run, and the search for each format is slow."""
_COLONLESS = re.compile(r"[\w.~$%+/=-]{15,}", re.ASCII)
"""What a token has at least, as only Telegram's has a colon, before more than that. No time has."""
_TOKENS = re.compile(
    rf"(?<![A-Za-z0-9])(?:{'|'.join(f'(?:{one})' for one in FORMATS.values())})", re.ASCII
)


def may_hold_token(text: str) -> bool:
    """Whether there is a run of characters in which a token may stand."""
    return _COLONLESS.search(text) is not None


def replace_tokens(text: str, mask: Callable[[str], str]) -> str:
    """Return the text with each token replaced by what `mask` gives for it."""

    def replace_in(run: re.Match[str]) -> str:
        if not may_hold_token(run[0]):
            return run[0]
        return _TOKENS.sub(lambda token: mask(token[0]), run[0])

    return _RUN.sub(replace_in, text)
