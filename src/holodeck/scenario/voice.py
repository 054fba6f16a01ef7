"""Voice agents, which are not supported: whatever is used of this module says so."""

from typing import NoReturn

from holodeck.errors import ConfigError

NAMES = frozenset(
    {
        "AdapterCapabilities",
        "AgentStreamEndedError",
        "AudioChunk",
        "AudioSegment",
        "ComposableVoiceAgent",
        "ElevenLabsAgentAdapter",
        "ElevenLabsSTTProvider",
        "ElevenLabsVoiceAgent",
        "FirstChunkTimeoutError",
        "GeminiLiveAgentAdapter",
        "InterruptionConfig",
        "LatencyMetrics",
        "LiveKitAgentAdapter",
        "ModalityNegotiationError",
        "OpenAIRealtimeAgentAdapter",
        "OpenAISTTProvider",
        "PipecatAgentAdapter",
        "PipecatRecvError",
        "STTProvider",
        "TunnelNotReadyError",
        "TwilioAgentAdapter",
        "UnsupportedCapabilityError",
        "VapiAgentAdapter",
        "VoiceAgentAdapter",
        "VoiceEvent",
        "VoiceRecording",
        "WebRTCAgentAdapter",
        "WebSocketAgentAdapter",
        "WebSocketProtocol",
        "audio",
        "dtmf",
        "effects",
        "interrupt",
        "register_tts_provider",
        "set_stt_provider",
        "silence",
        "sleep",
    }
)
"""What `scenario` offers for voice agents."""


def refuse_voice(name: str) -> None:
    """Raise ConfigError if the name belongs to voice agents."""
    if name in NAMES:
        _refuse(f"scenario.{name}")


def _refuse(name: str) -> NoReturn:
    raise ConfigError(
        name,
        "voice agents are not supported; test the agent behind the voice with texts: an"
        " AgentAdapter whose 'call' returns what it says. Messages may hold 'input_audio' parts",
    )


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _refuse(f"scenario.voice.{name}")
