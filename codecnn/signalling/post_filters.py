"""Functions that write filters into streams as post-filter messages.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from codecnn.base.errors import ConfigError
from codecnn.base.keywords import checked_keywords
from codecnn.base.outputs import check_outputs

if TYPE_CHECKING:
    from codecnn.signalling.nnpf import Characteristics

CarriedAs = Literal["uri", "payload"]
"""Ways to carry weights in a message: by their SHA-256, or embedded."""

_SUFFIXES = {"vvc": (".266", ".vvc"), "hevc": (".265", ".hevc")}


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


@checked_keywords()
def write_filter(
    stream: Path | str,
    model: Path | str,
    output: Path | str,
    *,
    mode: CarriedAs = "uri",
    exact: bool | None = None,
    number: int = 0,
    unfiltered: Collection[int] = (),
    every_irap: bool | None = None,
    onnx_uri: str | None = None,
    patch: tuple[int, int] | None = None,
    overlap: int | None = None,
    replace: bool = False,
    update: Path | str | None = None,
) -> WrittenFilter:
    """Write a filter into a stream of VVC or HEVC without coding it again.

    The output is a byte stream whose NAL units are those of the input, and prefix SEI NAL units with the messages.

    Args:
        stream: The stream, also in a container.
        model: Weights: a file, or a name from `codecnn models`.
        output: Byte stream to write, .266 for VVC, .265 for HEVC.
        mode: "uri" names the weights by their SHA-256, "payload" embeds them.
        exact: True carries the integer form of the weights, False the float form, None the integers of 8 bits if they
            exist. `filter_file` with the same value gives the same pictures as the stream's filter.
        number: nnpfc_id of the filter.
        unfiltered: Positions in output order of pictures that stay unfiltered.
        every_irap: Repeat the messages at IRAP pictures within a coded video sequence; None does so for "uri".
        onnx_uri: URI of an ONNX file for other decoders, which is named instead of the weights.
        patch: Width and height of the patches in luma samples; None is the picture.
        overlap: Luma samples around a patch; None is the halo of the network for pictures that are one patch, else its
            radius.
        replace: Remove post-filter messages that the stream has.
        update: Update of the weights that `adapt` wrote; with `onnx_uri`, one that `adapt` wrote for it. The file at
            the URI must then be adaptable, and `nncodec` codes the update (`codecnn.signalling.nnpf.encode_tensors`).

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

    stream, output = Path(stream), Path(output)
    weights = weights_path(model)
    check_outputs([output], [stream, update, *weights_files(weights)])
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
        weights, filter_, parsed.info, number=number, mode=mode, onnx_uri=onnx_uri, patch=patch, overlap=overlap
    )
    repeated = mode == "uri" if every_irap is None else every_irap
    message = None
    if update is not None:
        text = read_update_file(update).update
        layers = last_layers(filter_, str(weights))
        changes = read_update(text, [layer.size for layer in layers], filter_.card.sha256 or "")
        adapted(filter_, changes, str(weights))
        if onnx_uri is None:
            message = update_characteristics(text, number)
        else:
            message = onnx_update_characteristics(changes, layers, number)
    content = insert_messages(
        parsed, characteristics, update=message, unfiltered=unfiltered, every_irap=repeated, replace=replace
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
        filtered=pictures - len(set(unfiltered)),
        messages=sum(len(picture.messages) for picture in written.pictures),
        bytes_added=len(content) - len(parsed.data),
    )
