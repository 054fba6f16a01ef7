"""Tokens of services are masked without being known."""

import pytest

from holodeck.lib.secrets.formats import FORMATS
from holodeck.lib.secrets.redact import Redactor
from support.pace import bounded_work

MIXED = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6kL9nP2rS5uV8xY1aD4gG7iK0mM3" * 6
HEX = "0123456789abcdef" * 20
UPPER = MIXED.upper()
UUID = f"{HEX[:8]}-{HEX[:4]}-{HEX[:4]}-{HEX[:4]}-{HEX[:12]}"

# Built from parts, so that no scanner takes this file for a leak.
TOKENS = {
    "Anthropic, OpenAI, OpenRouter, DeepSeek, Langfuse": [
        f"sk-ant-api03-{MIXED[:93]}AA", f"sk-proj-{MIXED[:74]}T3BlbkFJ{MIXED[:74]}",
        f"sk-svcacct-{MIXED[:40]}", f"sk-{MIXED[:20]}T3BlbkFJ{MIXED[:20]}", f"sk-or-v1-{HEX[:64]}",
        f"sk-{HEX[:32]}", f"sk-lf-{UUID}",
    ],
    "Cerebras": [f"csk-{MIXED[:48]}"],
    "ElevenLabs": [f"sk_{HEX[:48]}"],
    "Fireworks": [f"fw_{MIXED[:22]}"],
    "Google": [
        f"AIza{MIXED[:35]}", f"AQ.Ab{MIXED[:48]}", f"ya29.{MIXED[:60]}", f"GOCSPX-{MIXED[:28]}"
    ],
    "Groq": [f"gsk_{MIXED[:52]}"],
    "Hugging Face": [f"hf_{MIXED[:34]}", f"api_org_{MIXED[:34]}"],
    "Jina": [f"jina_{MIXED[:60]}"],
    "LangSmith": [f"lsv2_pt_{HEX[:32]}_{HEX[:10]}"],
    "NVIDIA": [f"nvapi-{MIXED[:64]}"],
    "Perplexity": [f"pplx-{MIXED[:48]}"],
    "Pinecone": [f"pcsk_{MIXED[:6]}_{MIXED[:63]}"],
    "Replicate": [f"r8_{MIXED[:37]}"],
    "Tavily": [f"tvly-dev-{MIXED[:32]}"],
    "Together": [f"tgp_v1_{MIXED[:43]}"],
    "Voyage": [f"pa-{MIXED[:43]}"],
    "xAI": [f"xai-{MIXED[:80]}"],
    "AWS": [
        f"AKIA{UPPER[:16]}", f"ASIA{UPPER[:16]}", f"ABIA{UPPER[:16]}", f"ABSK{MIXED[:109]}=",
        f"bedrock-api-key-{MIXED[:60]}",
    ],
    "Alibaba": [f"LTAI{MIXED[:20]}"],
    "Azure": [
        f"{MIXED[:52]}JQQJ99BA{MIXED[:25]}", f"{MIXED[:76]}AZDO{MIXED[:4]}", f"abc8Q~{MIXED[:34]}"
    ],
    "Cloudflare": [f"v1.0-{HEX[:24]}-{HEX[:146]}", f"cfut_{MIXED[:48]}"],
    "Databricks": [f"dapi{HEX[:32]}", f"dapi{HEX[:32]}-2"],
    "DigitalOcean": [f"dop_v1_{HEX[:64]}", f"doo_v1_{HEX[:64]}"],
    "Fly.io": [f"fo1_{MIXED[:43]}", f"fm2_{MIXED[:150]}"],
    "Heroku": [f"HRKU-AA{MIXED[:58]}"],
    "Netlify": [f"nfp_{MIXED[:36]}"],
    "OpenShift": [f"sha256~{MIXED[:43]}"],
    "Supabase": [f"sbp_{HEX[:40]}", f"sb_secret_{MIXED[:31]}"],
    "Vercel": [f"vcp_{MIXED[:56]}"],
    "Artifactory": [f"AKCp{MIXED[:69]}", f"cmVmd{MIXED[:59]}"],
    "Atlassian": [f"ATATT3{MIXED[:186]}", f"ATBB{MIXED[:32]}"],
    "Clojars": [f"CLOJARS_{HEX[:60]}"],
    "crates.io": [f"cio{MIXED[:32]}"],
    "Docker": [f"dckr_pat_{MIXED[:27]}", f"dckr_oat_{MIXED[:32]}"],
    "GitHub": [f"ghp_{MIXED[:36]}", f"ghs_{MIXED[:36]}", f"github_pat_{MIXED[:22]}_{MIXED[:59]}"],
    "GitLab": [
        f"glpat-{MIXED[:20]}", f"gldt-{MIXED[:20]}", f"glrt-{MIXED[:20]}", f"glptt-{HEX[:40]}",
        f"glcbt-1a_{MIXED[:20]}", f"gloas-{HEX[:64]}", f"glpat-{MIXED[:27]}.01.{HEX[:9]}",
        f"GR1348941{MIXED[:20]}",
    ],
    "npm": [f"npm_{MIXED[:36]}"],
    "NuGet": [f"oy2{MIXED[:43].lower()}"],
    "PyPI": [f"pypi-AgEIcHlwaS5vcmc{MIXED[:80]}"],
    "RubyGems": [f"rubygems_{HEX[:48]}"],
    "Sourcegraph": [f"sgp_{HEX[:16]}_{HEX[:40]}", f"sgp_{HEX[:40]}"],
    "1Password": [f"ops_eyJ{MIXED[:250]}"],
    "Age": [f"AGE-SECRET-KEY-1{UPPER[:58]}"],
    "Doppler": [f"dp.pt.{MIXED[:43]}"],
    "Dynatrace": [f"dt0c01.{UPPER[:24]}.{UPPER[:64]}"],
    "Grafana": [f"glc_{MIXED[:40]}", f"glsa_{MIXED[:32]}_{HEX[:8]}"],
    "HashiCorp": [f"{MIXED[:14]}.atlasv1.{MIXED[:65]}", f"hvs.{MIXED[:95]}", f"hvb.{MIXED[:140]}"],
    "New Relic": [f"NRAK-{UPPER[:27]}"],
    "PlanetScale": [f"pscale_tkn_{MIXED[:43]}"],
    "Postman": [f"PMAK-{HEX[:24]}-{HEX[:34]}"],
    "Prefect": [f"pnu_{MIXED[:36]}"],
    "Pulumi": [f"pul-{HEX[:40]}"],
    "Sentry": [f"sntrys_{MIXED[:60]}", f"sntryu_{HEX[:64]}"],
    "Airtable": [f"pat{MIXED[:14]}.{HEX[:64]}"],
    "Brevo": [f"xkeysib-{HEX[:64]}-{MIXED[:16]}"],
    "Contentful": [f"CFPAT-{MIXED[:43]}"],
    "Discord": [f"MTIzNDU2Nzg5MDEyMzQ1Njc4.{MIXED[:6]}.{MIXED[:38]}"],
    "Facebook": [f"EAAC{MIXED[:80]}"],
    "Figma": [f"figd_{MIXED[:40]}"],
    "HubSpot": [f"pat-na1-{UUID}"],
    "Linear": [f"lin_api_{MIXED[:40]}"],
    "Mailchimp": [f"{HEX[:32]}-us12"],
    "Mailgun": [f"key-{HEX[:32]}"],
    "Mapbox": [f"sk.eyJ{MIXED[:60]}.{MIXED[:22]}"],
    "Notion": [f"ntn_{MIXED[:46]}", f"secret_{MIXED[:43]}"],
    "PayPal": [f"access_token$production${HEX[:16]}${HEX[:32]}"],
    "PostHog": [f"phx_{MIXED[:43]}"],
    "SendGrid": [f"SG.{MIXED[:22]}.{MIXED[:43]}"],
    "Shopify": [f"shpat_{HEX[:32]}"],
    "Slack": [
        f"xoxb-123456789012-123456789012-{MIXED[:24]}", f"xoxe.xoxp-1-{MIXED[:60]}",
        f"xoxd-{MIXED[:40]}", f"xapp-1-A0123456789-1234567890123-{HEX[:64]}",
    ],
    "Square": [f"sq0atp-{MIXED[:22]}", f"EAAA{MIXED[:60]}"],
    "Stripe": [f"sk_live_{MIXED[:24]}", f"rk_test_{MIXED[:24]}", f"whsec_{MIXED[:32]}"],
    "Telegram": [f"123456789:AA{MIXED[:33]}"],
    "Twilio": [f"SK{HEX[:32]}"],
    "Typeform": [f"tfp_{MIXED[:59]}"],
    "JSON Web Token": [f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{MIXED[:43]}"],
}  # fmt: skip


def test_the_tokens_of_each_service_are_masked(tally):
    shapes = [
        "it is {}, ok",
        "{}",
        '{{"k": "{}"}}',
        "key={}\n",
        "(`{}`)",
        "https://h/x?y={}&z=1",
        "10:45:{}:x",
    ]
    redact = Redactor().redact

    shown = [
        (service, token, shape)
        for service, tokens in TOKENS.items()
        for token in tokens
        for shape in shapes
        if token in redact(shape.format(token)) or token[8:-4] in redact(shape.format(token))
    ]

    tally("tokens that are shown", shown, sum(map(len, TOKENS.values())) * len(shapes))
    assert TOKENS.keys() == FORMATS.keys()


ORDINARY = [
    "sk-learn and sk-image are libraries", "a key-value-store-with-a-long-name",
    "fw_firewall_rules",
    "the-task-management-system-of-the-company", "https://example.com/patterns/pa-1/index.html",
    "tests/unit/lib/test_token_formats.py::test_the_tokens_of_each_service", "SKILLS and SKUs",
    "commit 0123456789abcdef0123456789abcdef01234567", UUID, "gpt-4o-2024-08-06",
    "2026-11-23T22:30:42.123456+00:00", "us.anthropic.claude-sonnet-4-20250514-v1:0",
    "sha256:" + HEX[:64], "MODULE.constants.some_very_long_name_of_a_function_in_a_module",
    "Name.module.submodule_with_long_name", "pat-and-mat-go-to-the-market-together",
    "getElementsByClassNameAndSomethingElse", "http://localhost:11434/v1/chat/completions",
]  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_words_and_numbers_are_no_tokens(text):
    assert Redactor().redact(text) == text


def test_a_megabyte_of_beginnings_of_tokens_is_searched_in_time(tally):
    starts = {
        token[:end] for tokens in TOKENS.values() for token in tokens for end in (3, 5, 8, 20)
    }

    with bounded_work():
        slow = [start for start in sorted(starts) if not search(start)]

    tally("texts", slow, len(starts))


def search(start):
    """Search a text in which a token begins everywhere."""
    for joint in ("", "-", "_", "."):
        Redactor().redact((start + joint) * (20_000 // len(start)))
    return True
