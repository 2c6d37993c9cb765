"""Function that filters a file with weights, with or without the decisions of an encoder.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codecnn.api.filter_inputs import auxiliary_sources, fitting_notes, network_qps, open_output, open_pictures
from codecnn.api.filter_options import FilterOptions
from codecnn.api.groups import AUTO
from codecnn.base.errors import ConfigError, ConversionError
from codecnn.base.options import verb
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import extension, find_extension

if TYPE_CHECKING:
    from codecnn.base.runtime import Runtime
    from codecnn.filtering import Choice, JoinedFilter, NetworkFilter
    from codecnn.pictures.files import ContainerOutput

_POLL_SECONDS = 1.0
_TIMED_PICTURES = 3
_INTEGER_BIT_DEPTH = 10
"""Largest bit depth of pictures that the shipped integer networks take."""

STATISTICS_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")
"""Suffixes of files with block statistics."""


@dataclass(frozen=True)
class FilteredFile:
    """Result of `filter`.

    Attributes:
        output: File with the filtered pictures.
        pictures: Number of pictures.
        decisions: With an original, what was decided, as `codecnn.filtering.count_decisions` returns it; else None.
        notes: Sentences about QPs and codecs that the network was not trained for.
        runtime: How the network was computed.
        weights: Names of the weights; None for filters that the stream carries.
        reason: Why codecnn chose them; None if they were named.
        qps: QP that the network took, of all pictures or of each; empty if it takes none.
        qp_source: Where the QPs come from, e.g. "crf 28 of x265".
        seconds_per_picture: Mean time in seconds of the pictures behind the first, for which the network is compiled;
            None if fewer than two were filtered.
    """

    output: Path
    pictures: int
    decisions: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    runtime: "Runtime | None" = None
    weights: str | None = None
    reason: str | None = None
    qps: tuple[int, ...] = ()
    qp_source: str | None = None
    seconds_per_picture: float | None = None

    def __repr__(self) -> str:
        qps = sorted(set(self.qps))
        used = f", QP {qps[0]}" + (f" to {qps[-1]}" if len(qps) > 1 else "") if qps else ""
        chosen = "" if self.reason is None else f" ({self.reason})"
        weights = self.weights or "filters of the stream"
        return f"<FilteredFile {self.output}: {self.pictures} pictures, {weights}{chosen}{used}>"


@verb(FilterOptions)
def filter(options: FilterOptions) -> FilteredFile:  # noqa: A001
    """Improve a coded video, or decoded pictures, with a network.

    Without weights, codecnn chooses them, and the QP that they take, by the codec, the pictures and the encoder of the
    stream; --effort says how much time a picture may take. A stream that carries filters in post-filter messages
    (codecnn nnpf) is filtered with those instead.

    A container as output is coded in segments: a filtering that was interrupted continues when it is run again.

    With an original, each picture is filtered as an encoder would choose by rate-distortion cost: off, on or by CTU,
    with the best residual scale and QP offset.

    Returns:
        The number of pictures, the decisions, and notes.

    Raises:
        ConfigError: The options do not fit together, an output is an input, or a QP is missing or out of range.
        MissingFileError: A file does not exist.
        FormatError: A file does not have the stated format.
        ModelError: The weights do not fit.
    """
    from codecnn.dataset import input_files
    from codecnn.filtering import check_lossy, choose_weights
    from codecnn.models import weights_files, weights_path
    from codecnn.pictures.files import is_coded, probe_stream

    if Path(options.output).is_dir():
        raise ConfigError(f"{options.output} is a folder: name a file, e.g. {Path(options.output) / 'better.mkv'}")
    source, model = Path(options.source), None if str(options.model) == AUTO else options.model
    file = None if model is None else weights_path(model)
    files = [options.original, options.blocks, options.update, *options.planes.values()]
    weights = [] if file is None else weights_files(file)
    qp_files = [options.qp] if isinstance(options.qp, Path | str) else []
    check_outputs([options.output, options.decisions_file], [*input_files(source, *files), *weights, *qp_files])
    _check_combination(options)
    if file is not None:
        with _converted(source, model):
            return _filter_with(options, file, None)
    carries_filter = find_extension("signalling.carries_filter")
    if carries_filter is not None and carries_filter(source):
        _check_carried(options)
        return extension("signalling.filter_carried")(options)  # type: ignore[no-any-return]
    if options.qp is None:
        check_lossy(source)
    choice = choose_weights(source, options.effort or "normal")
    if options.exact is None and is_coded(source) and probe_stream(source).format.bit_depth > _INTEGER_BIT_DEPTH:
        options = replace(options, exact=False)
    with _converted(source, None):
        return _filter_with(options, choice.weights, choice)


@contextmanager
def _converted(source: Path, model: Path | str | None) -> Iterator[None]:
    """Add to errors about videos that must be converted how the result is filtered as the stream would be."""
    from codecnn.api.filter_inputs import options_without_stream

    try:
        yield
    except ConversionError as error:
        arguments = options_without_stream(source, model)
        raise ConversionError(f"{error}, and filter that with {arguments}") from error


def _filter_with(
    options: FilterOptions, model: Path | str, choice: "Choice | None", share: tuple[int, int] | None = None
) -> FilteredFile:
    """Filter a file with weights.

    Args:
        options: Options of `filter`.
        model: The weights.
        choice: Why they were chosen; None if the user named them.
        share: (i, n): filter every n-th segment of a container from the i-th on, and do not join them.
    """
    from codecnn.filtering import count_decisions, decide_video, filter_video, write_decisions
    from codecnn.pictures.files import ContainerOutput, open_like

    filter_ = _load(options, model, None if choice is None else choice.chroma)
    if options.update is not None:
        filter_ = extension("signalling.apply_update")(filter_, options.update, str(model))
    with ExitStack() as segments, ExitStack() as stack:
        video, carrier = open_pictures(options, stack)
        takes_qp = "qp" in filter_.planes
        chosen = (
            network_qps(options, filter_, video, choice is not None)
            if takes_qp or options.original is not None
            else None
        )
        qps = [0] if chosen is None else chosen.qps
        notes = fitting_notes(options, filter_.card, qps if takes_qp else [], len(video))
        output = open_output(options, video, carrier, filter_, {"qps": list(qps)})
        if isinstance(output, ContainerOutput) and share is None:
            segments.enter_context(output.kept_to_continue())
            output.check()
        in_processes = share is None and options.jobs > 1
        if in_processes and (reason := _without_jobs(options, output)) is not None:
            notes.append(f"-j has no effect: {reason}")
            in_processes = False
        pace = _Pace()

        def report(pictures: int) -> None:
            pace.add()
            if options.progress is not None:
                options.progress(pictures, len(video))

        counts = None
        if isinstance(output, ContainerOutput) and options.original is None:
            if share is None and (before := output.refresh()):
                notes.append(f"{before} pictures were filtered before, when this command was interrupted")
            if in_processes:
                _share_segments(options, model, choice, output, len(video), pace)
            else:
                output.keep_share(share)
        if not isinstance(output, ContainerOutput) or output.missing:
            auxiliary = auxiliary_sources(filter_, video, options, stack)
            if options.original is None:
                filter_video(filter_, video, qps, output, beside=auxiliary, flat_chroma=False, progress=report)
            else:
                # With `frames`, the original may have more pictures than are filtered.
                originals = open_like(Path(options.original), video.format).select(frames=options.frames)
                decisions = decide_video(
                    filter_,
                    video,
                    stack.enter_context(originals),
                    qps,
                    output,
                    offsets=options.qp_offsets,
                    ctu=options.ctu_size,
                    beside=auxiliary,
                    progress=report,
                )
                counts = count_decisions(decisions)
                if options.decisions_file is not None:
                    size = video.format.width, video.format.height
                    write_decisions(Path(options.decisions_file), decisions, *size, options.ctu_size)
        stack.close()  # reports damage behind the last picture
        if isinstance(output, ContainerOutput) and share is None:
            output.join()
            notes += output.notes
        return FilteredFile(
            Path(options.output),
            len(video),
            counts,
            tuple(notes),
            filter_.runtime,
            weights=str(choice) if choice is not None else Path(model).name.removesuffix(".safetensors"),
            reason=None if choice is None else choice.reason,
            qps=tuple(qps) if takes_qp else (),
            qp_source=None if chosen is None else chosen.source,
            seconds_per_picture=pace.seconds,
        )


def _load(options: FilterOptions, model: Path | str, chroma: str | None) -> "NetworkFilter | JoinedFilter":
    """Load weights, and beside them those that filter chroma."""
    from codecnn.filtering import JoinedFilter, load_filter
    from codecnn.models import pick_device

    load = partial(
        load_filter,
        exact=options.exact,
        precision=options.precision,
        device=pick_device(options.device),
        tile=options.tile,
        memory=options.memory,
    )
    return load(model) if chroma is None else JoinedFilter(load(model), load(chroma))


def _without_jobs(options: FilterOptions, output: "Path | ContainerOutput") -> str | None:
    """Say why several processes cannot share the work; None if they can."""
    if isinstance(output, Path):
        return "only videos in .mkv and .mp4 are written in segments, which processes can share"
    if options.original is not None:
        return "decisions by an original are made by one process"
    return "the video is so short that it is one segment" if output.segments == 1 else None


def _share_segments(
    options: FilterOptions,
    model: Path | str,
    choice: "Choice | None",
    output: "ContainerOutput",
    pictures: int,
    pace: "_Pace",
) -> None:
    """Filter the segments of a container in several processes."""
    before = output.refresh()
    if not output.missing:
        return
    workers = min(options.jobs, len(output.missing))
    alone = replace(options, progress=None)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_filter_share, alone, model, choice, (index, workers)) for index in range(workers)]
        waiting: Iterable[Future[None]] = futures
        while waiting:
            finished, waiting = wait(waiting, _POLL_SECONDS, FIRST_EXCEPTION)
            for future in finished:
                future.result()
            present = output.refresh()
            pace.add(present - before)
            before = present
            if options.progress is not None:
                options.progress(present, pictures)


class _Pace:
    """Mean time of pictures, from the first report of some to the last."""

    def __init__(self) -> None:
        self._first = self._last = 0.0
        self._pictures = 0
        self._reported = False

    def add(self, pictures: int = 1) -> None:
        """Count pictures that have just been filtered."""
        if pictures == 0:
            return
        self._last = time.perf_counter()
        if self._reported:
            self._pictures += pictures
        else:
            self._first, self._reported = self._last, True

    @property
    def seconds(self) -> float | None:
        """Seconds per picture; None if there was one report."""
        return (self._last - self._first) / self._pictures if self._pictures else None


def _end_with(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


def _filter_share(options: FilterOptions, model: Path | str, choice: "Choice | None", share: tuple[int, int]) -> None:
    """Filter a part of the segments of a container, in a process of its own."""
    import torch

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(max(1, torch.get_num_threads() // share[1]))
    _filter_with(options, model, choice, share)


def time_weights(source: Path, names: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Filter a few pictures with each of some weights.

    The first pictures are repeated side by side until they fill 1920x1080. Planes that the VVC decoder rebuilds are
    replaced by those pictures, so that the decoder, whose compilation takes minutes, is not needed.

    Args:
        source: The stream, or pictures.
        names: Names of shipped weights.

    Yields:
        Name of the weights, and the time in seconds that a picture of 1920x1080 takes without decoding.
    """
    from codecnn.base.leftovers import temporary_folder

    with temporary_folder("timing") as folder:
        tiled = Path(folder) / "tiled.y4m"
        _tile(source, tiled)
        for name in names:
            yield name, _time(name, tiled)


def _tile(source: Path, output: Path) -> None:
    """Repeat the first pictures of a file until they fill 1920x1080."""
    import numpy as np

    from codecnn.pictures.files import Picture, create_video, open_video

    with open_video(source, frames=_TIMED_PICTURES) as video:
        form = replace(video.format, width=1920, height=1080)
        with create_video(output, form) as writer:
            for number in range(_TIMED_PICTURES):
                picture = video[number % len(video)]
                planes = []
                for plane, (height, width) in zip(picture.planes, form.plane_shapes, strict=True):
                    times = -(-height // plane.shape[0]), -(-width // plane.shape[1])
                    planes.append(np.tile(plane, times)[:height, :width])
                writer.write(Picture(tuple(planes), picture.bit_depth))


def _time(weights: str, tiled: Path) -> float:
    """Return the mean time in seconds of the pictures behind the first, which also prepares the network."""
    from codecnn.base.planes import REBUILT_PLANES, TEMPORAL_PLANES
    from codecnn.filtering import auxiliary_planes, filter_video, load_filter, temporal_source
    from codecnn.pictures.files import open_video

    filter_, pace = load_filter(weights, exact=None), _Pace()
    with open_video(tiled) as video:
        rebuilt = [name for name in filter_.planes if name in REBUILT_PLANES]
        temporal = [name for name in filter_.planes if name in TEMPORAL_PLANES]
        beside = auxiliary_planes(
            filter_.planes,
            video.format,
            {},
            None,
            lambda number: dict.fromkeys(rebuilt, video[number].y),
            ["B"],
            temporal_source(temporal, video) if temporal else None,
        )
        output = tiled.with_name("filtered.y4m")
        filter_video(filter_, video, [32], output, beside=beside, progress=lambda _: pace.add())
    assert pace.seconds is not None, "several pictures are timed"
    return pace.seconds


def _check_combination(options: FilterOptions) -> None:
    """Raise ConfigError for options that do not fit together."""
    if options.update is not None and options.model is None:
        raise ConfigError("--update needs weights, those that it was made for: name them with -m")
    if options.effort is not None and str(options.model or AUTO) != AUTO:
        raise ConfigError(f"--effort chooses the weights, and -m names {options.model}: leave out one of them")
    if options.original is None:
        reason = "needs --original: decisions are made against the original pictures"
        if options.decisions_file is not None:
            raise ConfigError(f"{options.decisions_file} {reason}")
        if tuple(options.qp_offsets) != (0,):
            raise ConfigError(f"--qp-offsets {reason}")
    elif options.decisions_file is not None and not str(options.decisions_file).endswith(STATISTICS_SUFFIXES):
        raise ConfigError(f"{options.decisions_file} is written as block statistics: end its name in .vtmbmsstats")


def _check_carried(options: FilterOptions) -> None:
    """Raise ConfigError for options that do not fit a filter that a stream carries."""
    unfit = {
        "--original": options.original,
        "--plane": options.planes or None,
        "--blocks": options.blocks,
        "--slice-type": options.slice_type,
        "--update": options.update,
        "--exact or --float": options.exact,
        "--encode": options.encode,
        "--effort": options.effort,
    }
    if given := [name for name, value in unfit.items() if value is not None]:
        raise ConfigError(f"{options.source} carries a filter, and {given[0]} needs weights: name them with -m")
