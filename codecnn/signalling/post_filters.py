"""Functions that write filters into streams as post-filter messages.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from codecnn.api.groups import Exact, FileName, Model, parse_pair
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, record, verb
from codecnn.base.outputs import check_outputs

if TYPE_CHECKING:
    from codecnn.signalling.nnpf import Characteristics

CarriedAs = Literal["uri", "payload"]
"""Ways to carry weights in a message: by their SHA-256, or embedded."""

MESSAGES, DECODERS = "Messages", "Other decoders"
"""Groups of options in --help."""

_SUFFIXES = {"vvc": (".266", ".vvc"), "hevc": (".265", ".hevc")}


def _numbers(text: str) -> set[int]:
    """Parse numbers and ranges, e.g. "0,4-7"."""
    numbers: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ConfigError(f"--off {part!r} is no number or range of pictures, e.g. 0,4-7")
        if int(last or first) >= 10**7:
            raise ConfigError(f"--off {part!r} names more pictures than a stream has")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


@dataclass(frozen=True)
class WrittenFilter:
    """Result of `write_filter`.

    Attributes:
        output: The stream that was written.
        weights: The weights file that the messages carry.
        characteristics: The message that describes the filter.
        pictures: Number of pictures that are output.
        filtered: Number of these that are filtered.
        messages: Number of messages that were inserted.
        bytes_added: Bytes by which the stream grew.
    """

    output: Path
    weights: Path
    characteristics: "Characteristics"
    pictures: int
    filtered: int
    messages: int
    bytes_added: int


@record
class WriteOptions:
    """Options of `write_filter`."""

    stream: Annotated[FileName, argument("Stream of VVC or HEVC, also in MP4, MKV or TS.", "STREAM", kind=Path)]
    model: Model
    output: Annotated[FileName, option("-o", "--output", help="Byte stream to write: .266 for VVC, .265 for HEVC.")]
    _: KW_ONLY
    mode: Annotated[
        CarriedAs,
        option(
            "--mode",
            kind=CarriedAs,
            help="uri names the weights by their SHA-256 (about 120 bytes at each picture where decoding can start); "
            "payload embeds the weights.",
        ),
    ] = "uri"
    exact: Exact = None
    unfiltered: Annotated[
        Collection[int],
        option(
            "--off",
            parse=_numbers,
            help="Pictures that stay unfiltered, by number in output order, e.g. 0,4-7.",
        ),
    ] = ()
    update: Annotated[
        FileName | None,
        option("--adapt", metavar="UPDATE", help="Update of the weights for this stream, from codecnn adapt."),
    ] = None
    every_irap: Annotated[
        bool | None,
        option(
            "--repeat/--no-repeat",
            group=MESSAGES,
            help="Repeat the messages at every picture at which decoding can start (default: for --mode uri).",
        ),
    ] = None
    number: Annotated[int, option("--id", group=MESSAGES, help="nnpfc_id of the filter: 0 to 255, or from 512 on.")] = 0
    replace: Annotated[
        bool, option("--replace", group=MESSAGES, help="Remove post-filter messages that the stream has.")
    ] = False
    onnx_uri: Annotated[
        str | None,
        option(
            "--onnx",
            metavar="URI",
            group=DECODERS,
            help="Name an ONNX file (codecnn export --format nnpfc) for other decoders instead of the weights; with "
            "an update the file must be adaptable, and nncodec codes the update.",
        ),
    ] = None
    patch: Annotated[
        tuple[int, int] | None,
        option(
            "--patch",
            metavar="WxH",
            parse=parse_pair,
            group=DECODERS,
            help="Patches of decoders in luma samples, e.g. 256x256 (default: the picture).",
        ),
    ] = None
    overlap: Annotated[
        int | None,
        option(
            "--overlap",
            group=DECODERS,
            help="Luma samples around a patch, as in the file of --onnx (default: as needed).",
        ),
    ] = None


@verb(WriteOptions)
def write_filter(options: WriteOptions) -> WrittenFilter:
    """Write a filter into a stream, without coding it again: codecnn filter -i OUTPUT then needs no weights.

    The first picture of each coded video sequence gets the characteristics (NNPFC: inputs, outputs, patches, cost,
    network) and a persistent activation (NNPFA), as prefix SEI NAL units. All other NAL units stay byte for byte, so
    that decoders without post-filters decode the same pictures.

    Returns:
        What was written.

    Raises:
        ConfigError: The output has another suffix or is the input, the stream has post-filter messages, or an option is
            out of range.
        MissingFileError: A file does not exist.
        FormatError: The stream is damaged.
        ModelError: The weights cannot be described by the messages, or the update does not fit them.
    """
    from codecnn.base.files import atomic_path
    from codecnn.filtering import load_filter, prefers_integers
    from codecnn.filtering.integer import find_integers, is_integer
    from codecnn.models import weights_files, weights_path
    from codecnn.signalling.nnpf import (
        describe_weights,
        insert_messages,
        onnx_update_characteristics,
        read_messages,
        update_characteristics,
    )
    from codecnn.signalling.updates import adapted, last_layers, read_update, read_update_file

    stream, output, weights = Path(options.stream), Path(options.output), weights_path(options.model)
    mode, onnx_uri, number, exact = options.mode, options.onnx_uri, options.number, options.exact
    check_outputs([output], [stream, options.update, *weights_files(weights)])
    if mode == "payload" and onnx_uri is not None:
        raise ConfigError("a URI of an ONNX file names the network, which is then not embedded: use --mode uri")
    parsed = read_messages(stream)
    if output.suffix not in _SUFFIXES[parsed.codec]:
        suffix = _SUFFIXES[parsed.codec][0]
        raise ConfigError(f"{output}: the output is a byte stream of the same codec: end its name in {suffix}")
    if exact is None:
        exact = onnx_uri is None and prefers_integers(weights)
    if exact and not is_integer(weights):
        weights = find_integers(weights)
    filter_ = load_filter(weights)
    characteristics = describe_weights(
        weights,
        filter_,
        parsed.info,
        number=number,
        mode=mode,
        onnx_uri=onnx_uri,
        patch=options.patch,
        overlap=options.overlap,
    )
    repeated = mode == "uri" if options.every_irap is None else options.every_irap
    message = None
    if options.update is not None:
        text = read_update_file(options.update).update
        layers = last_layers(filter_, str(weights))
        changes = read_update(text, [layer.size for layer in layers], filter_.card.sha256 or "")
        adapted(filter_, changes, str(weights))
        if onnx_uri is None:
            message = update_characteristics(text, number)
        else:
            message = onnx_update_characteristics(changes, layers, number)
    content = insert_messages(
        parsed,
        characteristics,
        update=message,
        unfiltered=options.unfiltered,
        every_irap=repeated,
        replace=options.replace,
    )
    with atomic_path(output) as part:
        part.write_bytes(content)
    written = read_messages(output)
    pictures = sum(picture.position is not None for picture in parsed.pictures)
    return WrittenFilter(
        output=output,
        weights=weights,
        characteristics=characteristics,
        pictures=pictures,
        filtered=pictures - len(set(options.unfiltered)),
        messages=sum(len(picture.messages) for picture in written.pictures),
        bytes_added=len(content) - len(parsed.data),
    )
