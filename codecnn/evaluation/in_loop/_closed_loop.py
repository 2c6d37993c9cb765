"""The loop without libvvenc as a library: the chains of `evaluate_in_loop`, by `codecnn.codec.encoders.closed_loop`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codecnn.codec import CodecSettings, CodedPicture, code_closed_loop, coded_format
from codecnn.errors import ConfigError
from codecnn.evaluation.in_loop._coding import LoopPicture, LoopStream, filtered_behind, loop_picture
from codecnn.evaluation.in_loop._results import LoopRow, make_rows
from codecnn.evaluation.measure import Entry
from codecnn.filtering import Decisions, Filtered, check_served, filter_and_decide, slice_type_beside
from codecnn.runs import atomic_path
from codecnn.video import Picture, Video, create_video


@dataclass(frozen=True)
class ClosedLoop:
    """A sequence through all chains, every slice of one QP. `reference_psnr` is the lowest PSNR Y, dB, of a reference
    against the picture that it stands for."""

    rows: tuple[LoopRow, ...]
    reference_psnr: float


def closed_loop(
    entry: Entry,
    name: str,
    video: Video,
    settings: CodecSettings,
    *,
    decisions: Decisions = "ctu",
    before: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> ClosedLoop:
    """Code `video` with and without the filter in the loop, every slice at the QP of `settings`.

    The rows are those of `evaluate_in_loop`, bits those of the pictures alone. `before` is a raw YUV file for the
    pictures that the filter in the loop got. Raises ConfigError for fewer than two pictures, ModelError for a network
    that needs more than decoded pictures, EncoderError where the encoder does not do as it was asked.
    """
    if len(video) < 2:
        raise ConfigError(f"a closed loop needs two pictures at least, not {len(video)}")
    check_served(entry.name, entry.filter)
    form, ctu = coded_format(video.format, settings), settings.ctu_size
    assert ctu is not None

    def decide(original: Picture, decoded: Picture, coded: CodedPicture | LoopPicture) -> Filtered:
        beside = slice_type_beside(entry.filter.planes, coded.slice_type, form)
        return filter_and_decide(entry.filter, original, decoded, coded.qp, beside, decisions, ctu)

    def as_decoded(_: Picture, decoded: Picture, __: CodedPicture) -> Filtered:
        return Filtered(decoded, decoded, 0.0)

    plain, pictures, near = _code(video, settings, as_decoded, progress)
    behind = filtered_behind(video, pictures, plain, decide, lambda: None)
    looped, pictures, near_filtered = _code(video, settings, decide, progress)
    if before is not None:
        with atomic_path(before) as part, create_video(part, form) as out:
            for picture in pictures:
                out.write(picture)
    chains = _stream(plain), _stream(behind), _stream(looped)
    rows = make_rows(name, entry.name, settings.qp, chains, form, decisions, Path())
    return ClosedLoop(tuple(rows), min(near, near_filtered))


def _stream(pictures: list[LoopPicture]) -> LoopStream:
    return LoopStream(tuple(pictures), sum(picture.bits for picture in pictures), Path())


def _code(
    video: Video,
    settings: CodecSettings,
    through: Callable[[Picture, Picture, CodedPicture], Filtered],
    progress: Callable[[], None],
) -> tuple[list[LoopPicture], list[Picture], float]:
    """Code with `through` in the loop: what is told of each picture, each before `through`, and how near references
    came."""
    told: list[LoopPicture] = []
    got: list[Picture] = []

    def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
        made = through(video[coded.poc], decoded, coded)
        told.append(loop_picture(coded, video[coded.poc], made))
        got.append(decoded)
        progress()
        return made.picture

    _, near = code_closed_loop(video, video.format, settings, filter_)
    return told, got, near
