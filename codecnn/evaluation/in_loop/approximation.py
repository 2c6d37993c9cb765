"""Approximation of the loop with the encoder of ffmpeg, which does not know the filter; see `closed_loop`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from codecnn.base.errors import ConfigError
from codecnn.base.files import atomic_path
from codecnn.codec import CodecSettings, CodedPicture, code_closed_loop, coded_format
from codecnn.evaluation.in_loop.coding import decider, filter_behind, loop_picture
from codecnn.evaluation.in_loop.results import LoopPicture, LoopRow, LoopStream, make_rows
from codecnn.evaluation.measure import Entry
from codecnn.filtering import Decisions, Filtered, LoopParameters, check_in_loop, loop_parameters, picture_messages
from codecnn.pictures.files import Picture, Video, create_video


@dataclass(frozen=True)
class ClosedLoop:
    """One sequence through all chains of the approximated loop, with all slices at the same QP.

    Attributes:
        rows: One row for each of `CHAINS`.
        reference_psnr: Lowest luma PSNR in dB of a reference picture against the filtered picture it stands for.
    """

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
    """Approximate coding with the filter in the loop by `codecnn.codec.code_closed_loop`.

    Args:
        entry: The filter.
        name: Name of the sequence.
        video: Original video.
        settings: Encoder settings; every slice is coded at their QP.
        decisions: "none", "ctu" or "full".
        before: Raw YUV file that receives the input pictures of the filter in the loop; None writes none.
        progress: Called once a coded picture.

    Returns:
        The rows, whose bits are those of the pictures alone, and the quality of the references.

    Raises:
        ConfigError: The video has fewer than two pictures.
        ModelError: The network needs more than decoded pictures.
        EncoderError: The encoder fails or does not keep to the settings.
    """
    if len(video) < 2:
        raise ConfigError(f"a closed loop needs at least two pictures, not {len(video)}")
    check_in_loop(entry.name, entry.filter)
    form, ctu = coded_format(video.format, settings), settings.ctu_size
    assert ctu is not None
    decide = decider(entry, form, decisions, ctu)
    parameters = loop_parameters(entry.filter, entry.card.sha256, form.bit_depth, decisions, ctu)

    def unfiltered(_: Picture, decoded: Picture, __: CodedPicture) -> Filtered:
        return Filtered(decoded, decoded, 0.0)

    plain, inputs, plain_psnr = _code_closed_loop(video, settings, unfiltered, None, progress)
    post_filtered, _ = filter_behind(video, inputs, plain, decide, parameters, lambda: None)
    looped, inputs, looped_psnr = _code_closed_loop(video, settings, decide, parameters, progress)
    if before is not None:
        with atomic_path(before) as part, create_video(part, form) as out:
            for picture in inputs:
                out.write(picture)
    first, second, third = (
        LoopStream(_without_messages(pictures), sum(picture.bits for picture in pictures), Path())
        for pictures in (plain, post_filtered, looped)
    )
    rows = make_rows(name, entry.name, settings.qp, (first, second, third), form, decisions, Path())
    return ClosedLoop(tuple(rows), min(plain_psnr, looped_psnr))


def _without_messages(pictures: Iterable[LoopPicture]) -> tuple[LoopPicture, ...]:
    """Return pictures of an approximated loop, which no stream carries, without bits of messages and hashes."""
    return tuple(picture.model_copy(update={"message_bits": 0, "hash_bits": 0}) for picture in pictures)


def _code_closed_loop(
    video: Video,
    settings: CodecSettings,
    decide: Callable[[Picture, Picture, CodedPicture], Filtered],
    parameters: LoopParameters | None,
    progress: Callable[[], None],
) -> tuple[list[LoopPicture], list[Picture], float]:
    """Code with `decide` in the loop; returns picture records, inputs of the filter, and the PSNR of the references."""
    pictures: list[LoopPicture] = []
    inputs: list[Picture] = []

    def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
        filtered = decide(video[coded.poc], decoded, coded)
        picture = loop_picture(coded, video[coded.poc], filtered)
        if parameters is not None:
            added = picture_messages(parameters, filtered, coded.slice_type)
            picture = picture.model_copy(update={"flag_bits": added.decision_bits})
        pictures.append(picture)
        inputs.append(decoded)
        progress()
        return filtered.picture

    _, reference_psnr = code_closed_loop(video, video.format, settings, filter_)
    return pictures, inputs, reference_psnr
