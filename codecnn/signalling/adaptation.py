"""Function that adapts a network to a stream.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from codecnn.api.groups import MEMORY, Device, Exact, FileName, Frames, Memory, Model, parse_names
from codecnn.base.cluster import Progress
from codecnn.base.errors import CodecnnError, ConfigError, OutputError
from codecnn.base.options import option, progress_bar, record, verb
from codecnn.base.outputs import check_outputs

if TYPE_CHECKING:
    from codecnn.filtering import NetworkFilter, PlaneSource
    from codecnn.pictures.files import Picture, Video
    from codecnn.signalling.nnpf import Characteristics, FilterStream
    from codecnn.signalling.updates import FitSums, LastLayer, Update

STREAM = "In the stream"
"""Group of options in --help."""

_SAVE_SECONDS = 20.0
"""Time after which the sums so far are saved again."""


@dataclass(frozen=True)
class Adaptation:
    """Result of `adapt`.

    Attributes:
        output: The file with the update; None if no update pays.
        pictures: Number of pictures.
        changed: Number of values of the best update.
        bits: Bits that it adds to the stream.
        gain_db: Gain over the filter without update in dB by component, mean over the pictures.
        rate_change: Estimated relative change of the bit rate at equal PSNR, with these bits; negative is better.
    """

    output: Path | None
    pictures: int
    changed: int
    bits: int
    gain_db: dict[str, float]
    rate_change: float


@dataclass(frozen=True)
class _Sequence:
    """A decoded sequence with its originals, and what the filter needs of each picture."""

    filter_: "NetworkFilter"
    decoded: "Video"
    originals: "Video"
    qps: list[int]
    beside: "PlaneSource"

    def __len__(self) -> int:
        return len(self.decoded)

    def picture(self, number: int) -> "tuple[Picture, Picture, int, Mapping[str, Any]]":
        """Return a decoded picture, its original at the same bit depth, its QP and its auxiliary planes."""
        from codecnn.pictures.files import convert

        decoded = self.decoded[number]
        original = convert(self.originals[number], decoded.bit_depth)
        return decoded, original, self.qps[number], self.beside(number)


@record
class AdaptOptions:
    """Options of `adapt`."""

    model: Model
    original: Annotated[FileName, option("--original", help="Original pictures of the stream (YUV, Y4M, video).")]
    stream: Annotated[FileName, option("--stream", help="Stream of VVC or HEVC, also in MP4, MKV or TS.")]
    output: Annotated[FileName, option("-o", "--output", help="File with the update to write, e.g. update.json.")]
    _: KW_ONLY
    components: Annotated[
        Sequence[str] | None,
        option(
            "--components",
            parse=parse_names,
            help="Components that the update may change and that count, e.g. y or y,u,v (default: all of the network). "
            "With y an update is written only if luma alone pays for it.",
        ),
    ] = None
    frames: Frames = None
    qp: Annotated[
        int | None,
        option("-q", "--qp", help="QP for all pictures instead of the slice QPs, as that of the ONNX file."),
    ] = None
    every_irap: Annotated[
        bool,
        option(
            "--repeat/--no-repeat",
            group=STREAM,
            help="Count the bits of an update that is repeated at every picture at which decoding can start, or only "
            "at the first of each coded video sequence, as nnpf write with the same option writes it.",
        ),
    ] = True
    onnx_uri: Annotated[
        str | None,
        option(
            "--onnx",
            metavar="URI",
            group=STREAM,
            help="Adapt float weights for decoders that read an ONNX file (codecnn export --format nnpfc --adaptable), "
            "as nnpf write with the same option names it; needs nncodec.",
        ),
    ] = None
    exact: Exact = None
    memory: Memory = MEMORY
    device: Device = "auto"
    progress: Annotated[
        Progress | None,
        progress_bar("adapting", "picture", "Called with (pictures done, all pictures), over both passes."),
    ] = None


@verb(AdaptOptions)
def adapt(options: AdaptOptions) -> Adaptation:
    """Adapt a network to one sequence: a small change of its last layer, which the stream can carry.

    The change is chosen by least squares in one pass over the pictures and tried in a second one. It is written only if
    it pays: if the mean PSNR (Y, U and V 6:1:1) that it gains is worth more than all bits of its message. Otherwise the
    command says so, removes the update that an earlier run wrote to the same file, and ends with status 3. If it is
    interrupted, run it again to continue.

    Use the update with codecnn filter --update, or put it into the stream with codecnn nnpf write --adapt.

    Returns:
        What the update changes, gains and costs.

    Raises:
        ConfigError: The pictures do not fit each other, the stream is of another codec, the network has no such
            component, or the output is an input.
        OutputError: The output exists and is no update.
        MissingFileError: A file does not exist.
        FormatError: The stream is damaged.
        ModelError: The network cannot be adapted, or is not one for post-filters.
    """
    import numpy as np

    from codecnn.base.files import sha256_file
    from codecnn.base.leftovers import companion_path
    from codecnn.dataset import input_files
    from codecnn.filtering import load_filter
    from codecnn.filtering.integer import find_integers, is_integer
    from codecnn.models import pick_device, weights_files, weights_path
    from codecnn.signalling.updates import (
        WEIGHTS,
        UpdateFile,
        adapted,
        bit_cost,
        fit_update,
        last_layers,
        write_update,
        write_update_file,
    )

    weights, output = weights_path(options.model), Path(options.output)
    stream, original = Path(options.stream), Path(options.original)
    onnx_uri, exact, progress = options.onnx_uri, options.exact, options.progress
    sums_file = companion_path(output, ".sums.npz")
    check_outputs([output, sums_file], [*input_files(stream, original), *weights_files(weights)])
    _check_replaceable(output, sums_file)
    if exact is None:
        exact = onnx_uri is None
    if exact and not is_integer(weights):
        weights = find_integers(weights)
    filter_ = load_filter(weights, device=pick_device(options.device), memory=options.memory)
    layers = last_layers(filter_, str(weights))
    sha256 = sha256_file(weights)
    names = _components(options.components, [layer.output for layer in layers], str(weights))
    with ExitStack() as stack:
        sequence = _open(filter_, weights, options, stack)
        count = len(sequence)
        carrier = _Carrier.open(weights, filter_, layers, stream, options.every_irap, onnx_uri)
        price = bit_cost(names, carrier.bits)
        used = [layer for layer in layers if layer.output in names]
        key = _key(sequence, stream, original, names, options.qp)
        sums = _sums(sequence, used, sums_file, key, progress)
        fit = fit_update(sums, layers, sha256, price)
        update = fit.update
        bits, change, gain = 0, 0.0, dict.fromkeys(names, 0.0)
        if update is not None:
            changed_filter = adapted(filter_, update, str(weights))
            errors = np.zeros((2, count, len(names)))
            for number in range(count):
                errors[:, number] = _errors(sequence, changed_filter, number, names)
                if progress is not None:
                    progress(count + number + 1, 2 * count)
            logarithms = dict(zip(names, np.log(errors[0] / errors[1]).mean(0).tolist(), strict=True))
            saved = {name: WEIGHTS[name] * value / price for name, value in logarithms.items()}
            update, bits = _paying_parts(update, [saved.get(layer.output, 0.0) for layer in layers], carrier)
            kept = [layer.output for layer, part in zip(layers, update.parts, strict=True) if part is not None]
            gain |= {name: round(10 / np.log(10) * logarithms[name], 4) for name in kept}
            change = (bits - sum(saved[name] for name in kept)) / carrier.bits
        elif progress is not None:
            progress(2 * count, 2 * count)
    pays = change < 0
    number_changed = 0 if update is None else update.changed
    if pays and update is not None:
        content = UpdateFile(
            weights=weights.name.removesuffix(".safetensors"),
            weights_sha256=sha256,
            update=write_update(update, sha256),
            stream=stream.name,
            pictures=count,
            changed=number_changed,
            bits=bits,
            gain_db=gain,
            rate_change=round(change, 6),
        )
        write_update_file(output, content)
    else:
        # That of an earlier call must not be taken for the result of this one.
        output.unlink(missing_ok=True)
    sums_file.unlink(missing_ok=True)
    return Adaptation(output if pays else None, count, number_changed, bits, gain, change)


def _check_replaceable(output: Path, sums_file: Path) -> None:
    """Raise OutputError if the output exists and is no update, or the file of the sums exists and holds no sums."""
    from codecnn.signalling.updates import FitSums, read_update_file

    if output.is_file():
        try:
            read_update_file(output)
        except CodecnnError:
            raise OutputError(
                f"{output} exists and is no update that codecnn adapt wrote: name another output, or remove it"
            ) from None
    if sums_file.exists() and not FitSums.is_saved(sums_file):
        raise OutputError(f"{sums_file}, where the sums are kept during the work, is another file: move it away")


def _open(filter_: "NetworkFilter", weights: Path, options: AdaptOptions, stack: ExitStack) -> _Sequence:
    """Open the pictures and check that they fit each other."""
    from codecnn.base.errors import ModelError
    from codecnn.base.planes import SLICE_TYPE_PLANE
    from codecnn.filtering import auxiliary_planes, stream_qps, stream_slice_types
    from codecnn.pictures.files import open_like, open_video, stream_codec
    from codecnn.signalling.nnpf import POST_FILTER_PLANES

    stream, original, frames, qp = Path(options.stream), Path(options.original), options.frames, options.qp
    if foreign := sorted(set(filter_.planes) - POST_FILTER_PLANES):
        raise ModelError(f"{weights} takes the plane {foreign[0]}, which a post-filter does not have")
    if stream_codec(stream) not in ("vvc", "hevc"):
        raise ConfigError(f"{stream} is no stream of VVC or HEVC, which could carry the update")
    decoded = stack.enter_context(open_video(stream, frames=frames))
    originals = stack.enter_context(open_like(original, decoded.format))
    sizes = [(form.width, form.height, form.chroma) for form in (decoded.format, originals.format)]
    if sizes[0] != sizes[1] or len(originals) < len(decoded):
        raise ConfigError(
            f"{original} has {len(originals)} pictures of {originals.format}, and {stream} {len(decoded)} of "
            f"{decoded.format}: name the original of the stream"
        )
    count = len(decoded)
    qps = stream_qps(stream, count, all_pictures=frames is None) if qp is None else [qp] * count
    types = stream_slice_types(stream, count, all_pictures=frames is None) if SLICE_TYPE_PLANE in filter_.planes else []
    beside = auxiliary_planes(filter_.planes, decoded.format, {}, None, slice_types=types)
    return _Sequence(filter_, decoded, originals, qps, beside)


def _components(wanted: "Sequence[str] | None", names: list[str], model: str) -> list[str]:
    """Return the components that the update may change, in the order of the network."""
    if wanted is None:
        return names
    if foreign := sorted(set(wanted) - set(names)):
        raise ConfigError(f"{model} does not filter {foreign[0]!r}: choose components of {', '.join(names)}")
    if not wanted:
        raise ConfigError(f"no components are given: choose some of {', '.join(names)}")
    return [name for name in names if name in wanted]


def _key(sequence: _Sequence, stream: Path, original: Path, names: list[str], qp: int | None) -> str:
    """Return a hash of what decides the sums."""
    from codecnn.base.files import sha256_file, sha256_json
    from codecnn.filtering import filter_key

    # The name of a raw file states how it is read.
    files = [[sha256_file(path), path.name] for path in (stream, original)]
    formats = [str(video.format) for video in (sequence.decoded, sequence.originals)]
    return sha256_json([3, filter_key(sequence.filter_), files, formats, len(sequence), names, qp])


def _sums(
    sequence: _Sequence, layers: "list[LastLayer]", saved: Path, key: str, progress: Progress | None
) -> "FitSums":
    """Collect the sums of all pictures, from where an earlier call was interrupted."""
    from codecnn.signalling.updates import Collector, FitSums

    sums = FitSums.load(saved, layers, key) or FitSums.empty(layers)
    collector = Collector(sequence.filter_, layers, sums)
    last = time.monotonic()
    for number in range(sums.pictures, len(sequence)):
        collector.add(*sequence.picture(number))
        if progress is not None:
            progress(number + 1, 2 * len(sequence))
        if time.monotonic() - last > _SAVE_SECONDS:
            sums.save(saved, key)
            last = time.monotonic()
    sums.save(saved, key)
    return sums


def _paying_parts(update: "Update", saved_bits: Sequence[float], carrier: "_Carrier") -> "tuple[Update, int]":
    """Leave out the parts of an update that save fewer bits than they cost; return it with its bits in the stream.

    Rounding and clipping, which the least squares ignore, can make a part worse than they predict.

    Args:
        update: The update.
        saved_bits: Gain of each part, in bits.
        carrier: The stream.
    """
    bits = carrier.added_bits(update)
    for index, saved in enumerate(saved_bits):
        if update.parts[index] is None:
            continue
        parts = (*update.parts[:index], None, *update.parts[index + 1 :])
        without = replace(update, parts=parts)
        fewer = carrier.added_bits(without) if any(parts) else 0
        if saved <= bits - fewer:
            update, bits = without, fewer
    return update, bits


def _errors(sequence: _Sequence, changed: "NetworkFilter", number: int, names: list[str]) -> Any:
    """Return the squared errors of a picture by the filter and by the adapted one, shape (2, components)."""
    import numpy as np

    from codecnn.signalling.updates import smallest_error

    decoded, original, qp, beside = sequence.picture(number)
    targets = {name: original.planes["yuv".index(name)].astype(np.int64) for name in names}
    return [
        [
            max(
                float(np.square(picture.planes["yuv".index(name)].astype(np.int64) - target).sum()),
                smallest_error(target.size),
            )
            for name, target in targets.items()
        ]
        for picture in (filter_(decoded, qp, beside) for filter_ in (sequence.filter_, changed))
    ]


@dataclass(frozen=True)
class _Carrier:
    """A stream that carries the filter, without an update of it.

    Attributes:
        layers: The last layers of the filter.
        sha256: SHA-256 of the weights.
        for_onnx: The update is for other decoders, which read an ONNX file.
        bits: Bits of the stream.
    """

    parsed: "FilterStream"
    described: "Characteristics"
    every_irap: bool
    layers: "list[LastLayer]"
    sha256: str
    for_onnx: bool
    bits: int

    @classmethod
    def open(
        cls,
        weights: Path,
        filter_: "NetworkFilter",
        layers: "list[LastLayer]",
        stream: Path,
        every_irap: bool,
        onnx_uri: str | None,
    ) -> "_Carrier":
        """Read the stream and describe the filter."""
        from codecnn.base.files import sha256_file
        from codecnn.signalling.nnpf import describe_weights, read_messages

        parsed = read_messages(stream)
        described = describe_weights(weights, filter_, parsed.info, onnx_uri=onnx_uri)
        carrier = cls(parsed, described, every_irap, layers, sha256_file(weights), onnx_uri is not None, 0)
        return replace(carrier, bits=8 * len(carrier._write(None)))

    def _write(self, update: "Characteristics | None") -> bytes:
        from codecnn.signalling.nnpf import insert_messages

        stream = self.parsed
        return insert_messages(
            stream, self.described, update=update, every_irap=self.every_irap, replace=stream.has_messages
        )

    def added_bits(self, update: "Update") -> int:
        """Return the bits that an update adds."""
        from codecnn.signalling.nnpf import onnx_update_characteristics, update_characteristics
        from codecnn.signalling.updates import write_update

        number = self.described.nnpfc_id
        if self.for_onnx:
            message = onnx_update_characteristics(update, self.layers, number)
        else:
            message = update_characteristics(write_update(update, self.sha256), number)
        return 8 * len(self._write(message)) - self.bits
