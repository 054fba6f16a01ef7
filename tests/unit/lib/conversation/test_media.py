"""Images, files and sounds in messages: agents get them, and texts show short placeholders."""

import json

import pytest

from holodeck import scenario
from holodeck.models.cases.messages import text_of
from support.participants import a_user, an_agent

DATA = "QUJD" * 1000
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
FILE = {
    "type": "file",
    "file": {"filename": "bill.pdf", "file_data": f"data:application/pdf,{DATA}"},
}
SOUND = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "Look!"}, IMAGE, FILE, SOUND]}


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (IMAGE, "[image_url: image/png, 3 kB]"),
        (FILE, "[file: bill.pdf, application/pdf, 3 kB]"),
        (SOUND, "[input_audio: wav, 3 kB]"),
        ({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}},
         "[image_url: https://a.b/c.png]"),
        ({"type": "image_url", "image_url": "https://a.b/c.png"}, "[image_url: https://a.b/c.png]"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "[file: file-1]"),
        ({"type": "image_url"}, "[image_url]"),
        ({"type": "refusal", "refusal": "No."}, "[refusal]"),
    ],
    ids=["image", "file", "sound", "address", "bare address", "id", "empty", "other"],
)  # fmt: skip
def test_a_part_is_shown_by_its_kind_name_and_size(part, shown):
    assert text_of({"role": "user", "content": [part]}) == shown


async def test_agents_get_the_parts_and_judges_the_placeholders(fake_openai, capsys):
    verdict = {"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"}
    fake_openai.otherwise(json.dumps(verdict))
    agent, transcripts = an_agent("A bill."), []
    judge = scenario.JudgeAgent(
        criteria=["It reads the bill"], model="openai/m", api_base=fake_openai.url, api_key="k"
    )

    result = await scenario.arun(
        "media",
        "a picture",
        [agent, a_user(), judge],
        script=[
            scenario.message(MESSAGE),
            scenario.agent(),
            lambda state: transcripts.append(state.transcript()),
            scenario.judge(),
        ],
        verbose=True,
    )

    assert result.success
    assert agent.inputs[0].messages == [MESSAGE]
    for text in (transcripts[0], fake_openai.requests[0].prompt, capsys.readouterr().err):
        assert "[image_url: image/png, 3 kB]" in text
        assert "QUJDQUJD" not in text


async def test_an_agent_that_reads_only_texts_is_told_without_the_data():
    class Reader(scenario.AgentAdapter):
        async def call(self, input):  # noqa: A002 - the name is public API
            return input.last_new_user_message_str()

    with pytest.raises(ValueError, match="is not a text but") as raised:
        await scenario.arun(
            "media", "a picture", [Reader(), a_user()],
            script=[scenario.message(MESSAGE), scenario.agent(), scenario.succeed()],
        )  # fmt: skip

    assert len(str(raised.value)) < 300
