"""A whole sequence through a filter, picture by picture."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from codecnn.errors import ConfigError
from codecnn.filtering._base import NO_PLANES, Array, PictureFilter, Planes, rounded
from codecnn.filtering._inputs import Beside
from codecnn.filtering.decisions import Decision, decide_picture
from codecnn.planes import MAX_QP
from codecnn.video import Picture, Video, create_video, forget_pages

Progress = Callable[[int], None]
"""A function that is told how many pictures are done."""


def candidates(
    filter_: PictureFilter, picture: Picture, qp: int, offsets: Sequence[int] = (0,), beside: Planes = NO_PLANES
) -> dict[int, dict[str, Array]]:
    """What `decide_picture` chooses from: the filter's samples for the slice QP plus each of `offsets`, 0 among them.

    An offset that leads out of 0 to 63 is left out, and so are all but 0 where the network is not told the QP.
    """
    told = "qp" in filter_.planes
    kept = [offset for offset in dict.fromkeys((0, *offsets)) if not offset or (told and 0 <= qp + offset <= MAX_QP)]
    return {offset: filter_.samples(picture, qp + offset, beside) for offset in kept}


def filter_video(
    filter_: PictureFilter,
    video: Video,
    qps: Sequence[int],
    output: Path | str,
    *,
    beside: Beside | None = None,
    progress: Progress | None = None,
) -> None:
    """Filter every picture of `video` and write `output` (raw YUV, or Y4M by its suffix) in the same format.

    `qps` holds one QP for all pictures, or one a picture; `beside` gives what the network needs beyond the decoded
    ones. Two pictures are in memory at a time, and the output appears only when it is whole.
    """

    def make(number: int, picture: Picture, qp: int) -> Callable[[], Picture]:
        samples = filter_.samples(picture, qp, beside(number) if beside else NO_PLANES)
        return partial(rounded, picture, samples)

    _write(video, qps, output, make, progress)


def decide_video(
    filter_: PictureFilter,
    video: Video,
    originals: Video,
    qps: Sequence[int],
    output: Path | str,
    *,
    offsets: Sequence[int] = (0,),
    ctu: int = 128,
    beside: Beside | None = None,
    progress: Progress | None = None,
) -> list[Decision]:
    """As `filter_video`, but each picture as an encoder that knows the original would have it filtered.

    Returns what was decided of each; see `decide_picture` and `candidates`. A picture is decided on while the next one
    is in the network.
    """
    if len(originals) != len(video):
        raise ConfigError(f"{originals.path} has {len(originals)} pictures, {video.path} has {len(video)}")
    decisions = []

    def make(number: int, picture: Picture, qp: int) -> Callable[[], Picture]:
        filtered = candidates(filter_, picture, qp, offsets, beside(number) if beside else NO_PLANES)

        def decide() -> Picture:
            original = originals[number]
            decided, decision = decide_picture(original, picture, filtered, qp=qp, ctu=ctu)
            decisions.append(decision)
            forget_pages(original.y)
            return decided

        return decide

    _write(video, qps, output, make, progress)
    return decisions


def _write(
    video: Video,
    qps: Sequence[int],
    output: Path | str,
    make: Callable[[int, Picture, int], Callable[[], Picture]],
    progress: Progress | None,
) -> None:
    """Write what `make` gives of each picture: a function for the rest of the work, done beside the next picture's."""
    if len(qps) not in (1, len(video)):
        raise ConfigError(f"{len(qps)} QPs were given for {len(video)} pictures: give one, or one a picture")
    with create_video(output, video.format) as out, ThreadPoolExecutor(1) as pool:
        ending: Future[None] | None = None

        def end(number: int, picture: Picture, rest: Callable[[], Picture]) -> None:
            out.write(rest())
            # A mapped file's pages stay resident once they were read: of a long sequence all of them would.
            forget_pages(picture.y)
            if progress is not None:
                progress(number + 1)

        for number, picture in enumerate(video):
            rest = make(number, picture, qps[0] if len(qps) == 1 else qps[number])
            if ending is not None:
                ending.result()
            ending = pool.submit(end, number, picture, rest)
        if ending is not None:
            ending.result()
