"""Choice of weights for a stream: one record says what was chosen and why.

The table holds, for each codec and kind of pictures, the shipped weights that validation clips found best at each
effort (docs/research/stream_qp.md). A codec without weights of its own takes those that were measured to be best for
it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codecnn.base.errors import ConfigError
from codecnn.codec import output_pictures, read_encoder_settings, read_headers
from codecnn.pictures.files import STANDARD_NAMES, STREAM_CODECS, is_coded, probe_stream, stream_codec

Effort = Literal["fast", "normal", "best"]
"""Time that a picture may take: networks of about 4, 17 and 75 kMAC/pixel; without neighbours if fast."""

Content = Literal["intra", "video"]
"""Kind of the pictures of a stream: all intra, or some predicted from others."""

ASSUMED: tuple[str, Content] = ("hevc", "intra")
"""Codec and kind that are assumed of pictures without a stream."""

ASSUMED_QP = 24
"""QP that is assumed of them: it lost in none of 80 validation cells of AVC and HEVC, whatever their quality."""

_LOSSLESS = ("ffv1", "ffvhuff", "huffyuv", "magicyuv", "rawvideo", "utvideo", "v210", "v410")
"""ffmpeg's names of codecs that change no sample."""

_BORROWED = {"avc": "hevc"}
"""Codecs that lack weights for some content, and the codec whose weights were best for it in tests."""

_WEIGHTS: dict[tuple[str, Content], dict[Effort, str]] = {
    ("vvc", "intra"): {
        "fast": "low_cost_5.vvc",
        "normal": "low_cost_17.vvc_unf",
        "best": "low_cost_75.vvc_unf",
    },
    ("vvc", "video"): {
        "fast": "low_cost_5.vvc_video",
        "normal": "low_cost_17.vvc_video_mc",
        "best": "low_cost_75.vvc_video_mc",
    },
    ("hevc", "intra"): {
        "fast": "low_cost_5.hevc",
        "normal": "low_cost_17.hevc",
        "best": "low_cost_75.hevc",
    },
    ("hevc", "video"): {
        "fast": "low_cost_5.hevc_video",
        "normal": "low_cost_17.hevc_video_mc",
        "best": "low_cost_75.hevc_video_mc",
    },
    ("avc", "video"): {
        "fast": "low_cost_5.avc_video",
        "normal": "low_cost_17.avc_video_mc",
        "best": "low_cost_75.avc_video_mc",
    },
    ("av1", "intra"): {
        "fast": "low_cost_5.av1",
        "normal": "low_cost_17.av1",
        "best": "low_cost_75.av1",
    },
    ("av1", "video"): {
        "fast": "low_cost_5.av1_video",
        "normal": "low_cost_17.av1_video_mc",
        "best": "low_cost_17.av1_video_mc",
    },
}

_COLOUR: dict[tuple[str, Content], str] = {
    (codec, "video"): f"low_cost_yuv_17.{codec}_video_mc" for codec in ("hevc", "avc", "av1")
}
"""Weights that also filter 4:2:0 chroma: alone at effort normal, beside those for luma at effort best."""


@dataclass(frozen=True)
class Choice:
    """Weights for a stream and why.

    Attributes:
        weights: Name of shipped weights.
        reason: What the stream is, and for what the weights were trained, in words.
        content: Kind of the pictures.
        chroma: Name of the weights that filter chroma; None if it is filtered by `weights`, or not at all.
    """

    weights: str
    reason: str
    content: Content
    chroma: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all weights."""
        return (self.weights,) if self.chroma is None else (self.weights, self.chroma)

    def __str__(self) -> str:
        return self.weights if self.chroma is None else f"{self.weights}, chroma {self.chroma}"


def choose_weights(path: Path, effort: Effort = "normal") -> Choice:
    """Choose the weights for a file.

    Args:
        path: Stream of VVC, HEVC, AVC or AV1, also in a container; of other pictures `ASSUMED` is assumed.
        effort: Time that a picture may take.

    Raises:
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses a feature that codecnn does not read.
    """
    return candidates(path)[effort]


def candidates(path: Path) -> dict[Effort, Choice]:
    """Return the choice for a file at each effort, from fast to best; raises the errors of `choose_weights`."""
    codec = stream_codec(path)
    if codec not in STREAM_CODECS:
        reason = _assumption(path)
        return {effort: Choice(weights, reason, ASSUMED[1]) for effort, weights in _WEIGHTS[ASSUMED].items()}
    content = stream_content(path)
    source = codec if (codec, content) in _WEIGHTS else _BORROWED[codec]
    by_effort, chroma = _WEIGHTS[source, content], None
    colour = _COLOUR.get((source, content))
    if colour is not None and probe_stream(path).format.chroma == "420":
        by_effort, chroma = by_effort | {"normal": colour}, colour
    choices: dict[Effort, Choice] = {}
    for effort, weights in by_effort.items():
        reason = f"{STANDARD_NAMES[codec]} {'all intra' if content == 'intra' else 'video'}"
        trained = weights.split(".")[1].split("_")[0]
        if trained != codec:
            name, other = STANDARD_NAMES[codec], STANDARD_NAMES[trained]
            reason += f": no weights are trained for {name}; those for {other} gain most on it"
        choices[effort] = Choice(weights, reason, content, chroma if effort == "best" else None)
    return choices


def check_lossy(path: Path) -> None:
    """Check that a file is not coded without loss, by its codec or by what x264 and x265 wrote into the stream.

    Raises:
        ConfigError: It is.
    """
    codec = stream_codec(path)
    if codec in STREAM_CODECS:
        settings = read_encoder_settings(path)
        how = None if settings is None or not settings.lossless else f"{settings.program} coded {path} without loss"
    else:
        name = probe_stream(path).codec if is_coded(path) else ""
        how = f"{path} is {name.upper()}, which is lossless" if name in _LOSSLESS else None
    if how is not None:
        raise ConfigError(
            f"{how}: there is no coding error to repair (for pictures that a lossy codec had coded before, filter its "
            "stream, or name weights and QP with -m and -q)"
        )


def _assumption(path: Path) -> str:
    """Say what is assumed of a file without a stream whose headers codecnn reads."""
    assumed = f"taken as {STANDARD_NAMES[ASSUMED[0]]} intra pictures"
    if not is_coded(path):
        return f"pictures without a stream, {assumed}"
    codec = probe_stream(path).codec
    return f"{STANDARD_NAMES.get(codec, codec)}, for which no weights are trained: {assumed}"


def served_codecs(weights: str) -> list[str]:
    """Return the codec that shipped weights are for by their name, and those for which they are chosen."""
    codecs = [weights.partition(".")[2].split("_")[0]]
    contents: tuple[Content, ...] = ("intra", "video")
    for codec in STREAM_CODECS:
        for content in contents:
            source = codec if (codec, content) in _WEIGHTS else _BORROWED[codec]
            chosen = (*_WEIGHTS[source, content].values(), _COLOUR.get((source, content)))
            codecs += [codec] if weights in chosen else []
    return list(dict.fromkeys(codecs))


def stream_content(path: Path) -> Content:
    """Return whether all pictures of a stream are intra pictures; raises the errors of `choose_weights`."""
    return "intra" if all(picture.slice_type == "I" for picture in output_pictures(read_headers(path))) else "video"
