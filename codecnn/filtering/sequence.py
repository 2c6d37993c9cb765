"""Pictures and sequences through a filter, with or without the decisions of an encoder that knows the original.

`filter_video` filters at full strength, `decide_video` decides on each picture as an encoder would, both into a file.
`filter_and_decide` does the same for one picture in memory.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from codecnn.base.choices import Decisions as Decisions
from codecnn.base.errors import ConfigError
from codecnn.base.planes import MAX_QP
from codecnn.filtering.decisions import Decision, decide_picture
from codecnn.filtering.planes import NO_PLANES, PictureFilter, Planes, PlaneSource, components, round_samples
from codecnn.models.graph import Array
from codecnn.pictures.files import ContainerOutput, Picture, Video, VideoWriter, create_video, forget_pages

PicturesDone = Callable[[int], None]
"""A function that is called with the number of pictures that are done."""


QP_OFFSETS: Mapping[Decisions, tuple[int, ...]] = {"none": (0,), "ctu": (0,), "full": (0, -5, 5)}
"""Offsets to the slice QP that the network is tried with, for each kind of decisions; the first is no offset."""


@dataclass(frozen=True)
class Filtered:
    """The result of filtering one picture.

    Attributes:
        picture: The picture after the decision, or the network's picture without one.
        network: The network's picture at full strength.
        seconds: Time that the network took for the picture.
        decision: The decision, or None.
    """

    picture: Picture
    network: Picture
    seconds: float
    decision: Decision | None = None

    @property
    def bits(self) -> float:
        """Bits that signal the decision."""
        return 0.0 if self.decision is None else self.decision.bits


def filter_candidates(
    filter_: PictureFilter, picture: Picture, qp: int, offsets: Sequence[int] = (0,), beside: Planes = NO_PLANES
) -> dict[int, dict[str, Array]]:
    """Filter a picture at several QPs, for `decide_picture` to choose from.

    Args:
        filter_: The filter.
        picture: The decoded picture.
        qp: Slice QP that the picture was coded at.
        offsets: Offsets to the QP; 0 is added if it is missing. Offsets that lead outside 0 to 63 are skipped, and so
            are all but 0 if the network does not take the QP.
        beside: Auxiliary planes.

    Returns:
        Samples by component for each offset, that of 0 first.
    """
    takes_qp = "qp" in filter_.planes
    kept = [
        offset for offset in dict.fromkeys((0, *offsets)) if not offset or (takes_qp and 0 <= qp + offset <= MAX_QP)
    ]
    return {offset: filter_.samples(picture, qp + offset, beside) for offset in kept}


def filter_and_decide(
    filter_: PictureFilter,
    original: Picture,
    decoded: Picture,
    qp: int,
    beside: Mapping[str, Any],
    decisions: Decisions,
    ctu_size: int,
    scale_step: int = 1,
) -> Filtered:
    """Filter a decoded picture and decide as an encoder that knows the original.

    Args:
        filter_: The filter.
        original: The original picture.
        decoded: The decoded picture.
        qp: Slice QP that the picture was coded at.
        beside: Auxiliary planes.
        decisions: Kind of decisions.
        ctu_size: Width of a CTU in luma samples.
        scale_step: Distance of the scales in units of 1/256.

    Returns:
        The filtered picture, the time that the network took at the slice QP, and the decision.
    """
    start = time.perf_counter()
    samples_by_offset = {0: filter_.samples(decoded, qp, beside)}
    network = round_samples(decoded, samples_by_offset[0])
    seconds = time.perf_counter() - start
    if decisions == "none":
        return Filtered(network, network, seconds)
    # If the network does not take the QP, all candidates are the same, and a choice among them would only cost bits.
    for offset in QP_OFFSETS[decisions] if "qp" in filter_.planes else ():
        if offset and 0 <= qp + offset <= MAX_QP:
            samples_by_offset[offset] = filter_.samples(decoded, qp + offset, beside)
    picture, decision = decide_picture(original, decoded, samples_by_offset, qp=qp, ctu=ctu_size, scale_step=scale_step)
    return Filtered(picture, network, seconds, decision)


def filter_video(
    filter_: PictureFilter | Sequence[PictureFilter | None],
    video: Video,
    qps: Sequence[int],
    output: Path | str | ContainerOutput,
    *,
    beside: PlaneSource | None = None,
    flat_chroma: bool = True,
    progress: PicturesDone | None = None,
) -> None:
    """Filter every picture of a video into a file of the same format.

    Two pictures are in memory at a time. The output appears only when it is complete.

    Args:
        filter_: The filter, or one for each picture, where None is a picture that stays as it is.
        video: The decoded pictures.
        qps: One slice QP for all pictures, or one for each.
        output: File to write: Y4M if its suffix says so, else raw YUV; or a container, whose missing segments are
            written.
        beside: Source of the auxiliary planes that the network declares.
        flat_chroma: Whether chroma of a single value is filtered; else it stays, and with it black-and-white video.
        progress: Called with the number of pictures that are done.

    Raises:
        ConfigError: The number of QPs or of filters does not fit.
    """
    by_picture = filter_ if isinstance(filter_, Sequence) else [filter_] * len(video)
    if len(by_picture) != len(video):
        raise ConfigError(f"{len(by_picture)} filters were given for {len(video)} pictures")

    for numbers, file in _parts(video, output):
        with _writing(video, qps, file, progress) as finish:
            for number in numbers:
                picture, chosen = video[number], by_picture[number]
                if chosen is None:
                    finish(number, picture, partial(replace, picture))
                    continue
                qp = qps[0] if len(qps) == 1 else qps[number]
                samples = chosen.samples(picture, qp, beside(number) if beside else NO_PLANES)
                if not flat_chroma:
                    planes = components(picture)
                    samples = {
                        name: values
                        for name, values in samples.items()
                        if name == "y" or (planes[name] != planes[name][0, 0]).any()
                    }
                finish(number, picture, partial(round_samples, picture, samples))


def decide_video(
    filter_: PictureFilter,
    video: Video,
    originals: Video,
    qps: Sequence[int],
    output: Path | str | ContainerOutput,
    *,
    offsets: Sequence[int] = (0,),
    ctu: int = 128,
    beside: PlaneSource | None = None,
    progress: PicturesDone | None = None,
) -> list[Decision]:
    """Filter every picture of a video as an encoder that knows the originals would decide.

    A picture is decided on while the network computes the next one.

    Args:
        filter_: The filter.
        video: The decoded pictures.
        originals: The original pictures.
        qps: One slice QP for all pictures, or one for each.
        output: File to write: Y4M if its suffix says so, else raw YUV; or a container, whose segments are all written.
        offsets: Offsets to the QP that are tried; see `filter_candidates`.
        ctu: Width of a CTU in luma samples.
        beside: Source of the auxiliary planes that the network declares.
        progress: Called with the number of pictures that are done.

    Returns:
        The decision on each picture; see `decide_picture`.

    Raises:
        ConfigError: The numbers of originals or QPs do not fit.
    """
    if len(originals) != len(video):
        raise ConfigError(f"{originals.path} has {len(originals)} pictures, {video.path} has {len(video)}")
    decisions = []
    if isinstance(output, ContainerOutput):
        output.restart()

    def decide(number: int, picture: Picture, filtered: dict[int, dict[str, Array]], qp: int) -> Picture:
        original = originals[number]
        decided, decision = decide_picture(original, picture, filtered, qp=qp, ctu=ctu)
        decisions.append(decision)
        forget_pages(original.y)
        return decided

    for numbers, file in _parts(video, output):
        with _writing(video, qps, file, progress) as finish:
            for number in numbers:
                picture = video[number]
                qp = qps[0] if len(qps) == 1 else qps[number]
                filtered = filter_candidates(filter_, picture, qp, offsets, beside(number) if beside else NO_PLANES)
                finish(number, picture, partial(decide, number, picture, filtered, qp))
    return decisions


def _parts(
    video: Video, output: Path | str | ContainerOutput
) -> Iterator[tuple[Sequence[int], AbstractContextManager[VideoWriter]]]:
    """Yield the parts in which a video is written: numbers of pictures, and the file that they go into."""
    if not isinstance(output, ContainerOutput):
        yield range(len(video)), create_video(output, video.format, like=video)
        return
    for segment in output.missing:
        yield segment, output.segment(segment)


@contextmanager
def _writing(
    video: Video, qps: Sequence[int], file: AbstractContextManager[VideoWriter], progress: PicturesDone | None
) -> Iterator[Callable[[int, Picture, Callable[[], Picture]], None]]:
    """Write the results of a video picture by picture.

    Args:
        video: The pictures that are processed.
        qps: One slice QP for all pictures, or one for each.
        file: File to write.
        progress: Called with the number of pictures that are done.

    Yields:
        A function of the number of a picture, of the picture, and of what remains to be done for it, which returns the
        result and runs in a second thread while the network computes the next picture.
    """
    if len(qps) not in (1, len(video)):
        raise ConfigError(
            f"{len(qps)} QPs were given for {len(video)} pictures: give one for all, or one for each picture"
        )
    pending = deque[Future[None]]()
    with file as out, ThreadPoolExecutor(1) as pool:

        def write(number: int, picture: Picture, remaining: Callable[[], Picture]) -> None:
            out.write(remaining())
            # Pages of a mapped file stay resident once they are read: for a long sequence that would be the whole file.
            forget_pages(picture.y)
            if progress is not None:
                progress(number + 1)

        def finish(number: int, picture: Picture, remaining: Callable[[], Picture]) -> None:
            while pending:
                pending.popleft().result()
            pending.append(pool.submit(write, number, picture, remaining))

        yield finish
        while pending:
            pending.popleft().result()
