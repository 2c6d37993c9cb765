"""Weights of codecnn in post-filter messages: named or embedded, and loaded from there.

nnpfc_mode_idc is 1 (a URI) in messages for codecnn; mode 0 requires the payload to be a bitstream of ISO/IEC 15938-17.
nnpfc_tag_uri (RFC 4151) is `WEIGHTS_TAG`, and nnpfc_uri is one of:

- "ni:///sha-256;HASH" (RFC 6920): weights that the decoder has, by the SHA-256 of their .safetensors file.
- "data:application/zip;base64,DATA" (RFC 2397): a ZIP archive of weights.safetensors and card.json.

An update of weights has nnpfc_base_flag 0, the tag `UPDATE_TAG`, and the URI "data:,TEXT" with the text of
`codecnn.signalling.updates.write_update`.

`ONNX_TAG` with any URI names an ONNX file for other decoders, and an update of it has mode 0. Nothing that a message
names is ever fetched or opened, and embedded weights are tensors and a card that names an architecture of codecnn: no
code is run, nothing is unpickled.
"""

import base64
import binascii
import hashlib
import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codecnn.base.errors import CodecnnError, ModelError, UnsupportedError
from codecnn.base.leftovers import temporary_folder
from codecnn.base.planes import SLICE_TYPE_PLANE
from codecnn.signalling.nnpf.messages import MODE_NNC, MODE_URI, Characteristics

if TYPE_CHECKING:
    from codecnn.filtering import NetworkFilter

WEIGHTS_TAG = "tag:codecnn,2026:weights"
"""nnpfc_tag_uri of weights of codecnn; the authority is the name of the project."""

UPDATE_TAG = "tag:codecnn,2026:u"
"""nnpfc_tag_uri of updates of weights of codecnn; short, because it is a large part of an update."""

ONNX_TAG = "tag:onnx.ai,2017:onnx"
"""nnpfc_tag_uri of ONNX files, as the NNPF branch of vvdec expects it."""

MAX_WEIGHTS_BYTES = 32 * 2**20
MAX_CARD_BYTES = 2**20
MAX_ENCODED_BYTES = 48 * 2**20
"""Limits of embedded weights: file, card and base64 text."""

MAX_LAYERS = 1024
"""Largest number of convolutions, or of nodes of an integer network, that embedded weights may have."""

MAX_KMAC = 2000.0
"""Largest cost of embedded weights in kMAC per pixel; the largest shipped network has 400."""

DESCRIBED_PLANES = frozenset(("rec_y", "rec_u", "rec_v", "qp"))
"""Planes that the messages can describe."""

POST_FILTER_PLANES = DESCRIBED_PLANES | {SLICE_TYPE_PLANE}
"""Planes that codecnn has for a post-filter: also the slice type, from the headers, which no element describes."""

_HASH = re.compile(r"ni://[^/]*/sha-256;([A-Za-z0-9_-]{43})(?:\?.*)?")
_DATA = "data:application/zip;base64,"
_TEXT_DATA = "data:,"
_WEIGHTS_NAME, _CARD_NAME = "weights.safetensors", "card.json"
_CARD_LEFT_OUT = ("data_key", "trained_on", "training", "validation", "test", "calibration", "provenance")
"""Entries of a card about training and test, which filtering does not need."""


def hash_uri(sha256: str) -> str:
    """Return the URI that names a file by its SHA-256 in hexadecimal (RFC 6920)."""
    return f"ni:///sha-256;{base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip('=')}"


def embedding_uri(weights: Path) -> str:
    """Return the data URI that embeds weights with the part of their card that filtering needs.

    Args:
        weights: The .safetensors file; its card lies beside it.

    Raises:
        ModelError: The weights are larger than the limit for embedded weights.
    """
    from codecnn.base.files import read_json
    from codecnn.models import card_path

    content = weights.read_bytes()
    card = {name: value for name, value in read_json(card_path(weights)).items() if name not in _CARD_LEFT_OUT}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(_member(_WEIGHTS_NAME), content)
        archive.writestr(_member(_CARD_NAME), json.dumps(card, separators=(",", ":")))
    encoded = base64.b64encode(file.getvalue()).decode()
    if len(content) > MAX_WEIGHTS_BYTES or len(encoded) > MAX_ENCODED_BYTES:
        raise ModelError(f"{weights} has {len(content)} bytes, more than {MAX_WEIGHTS_BYTES}: use --mode uri")
    return _DATA + encoded


def _member(name: str) -> zipfile.ZipInfo:
    """Return an archive member whose bytes do not depend on the time."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def describe_network(characteristics: Characteristics) -> str:
    """Describe the network of a message in a few words, e.g. "codecnn weights, embedded (135479 bytes)"."""
    if characteristics.nnpfc_mode_idc != MODE_URI:
        return f"ISO/IEC 15938-17 bitstream of {len(characteristics.nnpfc_payload_byte or b'')} bytes"
    uri, tag = characteristics.nnpfc_uri or "", characteristics.nnpfc_tag_uri or ""
    if tag == WEIGHTS_TAG and (hashed := _HASH.fullmatch(uri)):
        return f"codecnn weights, SHA-256 {_hexadecimal(hashed[1])}"
    if tag == WEIGHTS_TAG and uri.startswith(_DATA):
        return f"codecnn weights, embedded ({(len(uri) - len(_DATA)) * 3 // 4} bytes)"
    if tag == UPDATE_TAG and uri.startswith(_TEXT_DATA):
        return f"update of codecnn weights ({(len(uri) - len(_TEXT_DATA)) * 3 // 4} bytes)"
    kind = {WEIGHTS_TAG: "codecnn weights", ONNX_TAG: "ONNX", UPDATE_TAG: "update"}.get(
        tag, f"unknown kind {tag[:80]!r}"
    )
    return f"{kind} at {uri[:80]!r}"


def update_characteristics(text: str, number: int) -> Characteristics:
    """Return the message that updates the filter `number` by the text of an update."""
    uri = {"nnpfc_tag_uri": UPDATE_TAG, "nnpfc_uri": _TEXT_DATA + text}
    return _update(number, nnpfc_mode_idc=MODE_URI, **uri)


def coded_update_characteristics(bitstream: bytes, number: int) -> Characteristics:
    """Return the message that updates the filter `number` by a bitstream of ISO/IEC 15938-17."""
    return _update(number, nnpfc_mode_idc=MODE_NNC, nnpfc_payload_byte=bitstream)


def _update(number: int, **network: Any) -> Characteristics:
    return Characteristics(
        nnpfc_purpose=1, nnpfc_id=number, nnpfc_base_flag=False, nnpfc_property_present_flag=False, **network
    )


def load_carried(
    characteristics: Characteristics, name: str, *, update: Characteristics | None = None, **options: Any
) -> "NetworkFilter":
    """Load the filter that a message names or embeds.

    Args:
        characteristics: The message.
        name: The stream, for error messages.
        update: The message that updates the filter.
        **options: Options of `codecnn.filtering.load_filter`: precision, device, tile, memory.

    Returns:
        The filter: in integers if the weights are integers, else in float.

    Raises:
        UnsupportedError: codecnn cannot apply filters of this kind.
        ModelError: The weights are unknown, damaged, too large, or do not fit the message.
    """
    from codecnn.filtering import load_filter
    from codecnn.models import path_of_sha256

    what = f"{name}, filter {characteristics.nnpfc_id}"
    tag, uri = characteristics.nnpfc_tag_uri or "", characteristics.nnpfc_uri or ""
    _check_supported(characteristics, what)
    if hashed := _HASH.fullmatch(uri):
        sha256 = _hexadecimal(hashed[1])
        path = path_of_sha256(sha256)
        if path is None:
            raise ModelError(
                f"{what}: the weights of SHA-256 {sha256} do not come with codecnn: name their file with -m"
            )
        filter_ = load_filter(path, **options)
    elif uri.startswith(_DATA):
        with temporary_folder("nnpf") as folder:
            filter_ = _load_embedded(uri, what, Path(folder), options)
    else:
        raise UnsupportedError(
            f"{what}: nnpfc_uri {uri[:80]!r} of {tag} is neither a hash nor embedded weights, and codecnn opens no "
            "others: name weights with -m"
        )
    _check_layout(characteristics, filter_, what)
    return filter_ if update is None else _updated(filter_, update, what)


def _updated(filter_: "NetworkFilter", update: Characteristics, what: str) -> "NetworkFilter":
    """Apply the update of a message to a filter."""
    from codecnn.signalling.updates import apply_text

    uri = update.nnpfc_uri or ""
    known = update.nnpfc_mode_idc == MODE_URI and update.nnpfc_tag_uri == UPDATE_TAG and uri.startswith(_TEXT_DATA)
    if not known or update.nnpfc_property_present_flag:
        raise UnsupportedError(
            f"{what} has an update of a kind that codecnn does not apply ({describe_network(update)[:120]}): name "
            "weights with -m"
        )
    try:
        return apply_text(filter_, uri[len(_TEXT_DATA) :], "the filter")
    except CodecnnError as error:
        raise ModelError(f"{what}: its update is refused: {error}") from error


def _check_supported(characteristics: Characteristics, what: str) -> None:
    """Raise UnsupportedError unless the message describes weights of codecnn that improve the quality."""
    hint = "name weights with -m"
    if characteristics.nnpfc_mode_idc != MODE_URI:
        raise UnsupportedError(f"{what} is a bitstream of ISO/IEC 15938-17, which codecnn does not decode: {hint}")
    if characteristics.nnpfc_tag_uri != WEIGHTS_TAG:
        raise UnsupportedError(
            f"{what} is of the kind {str(characteristics.nnpfc_tag_uri)[:80]!r}, and codecnn applies only "
            f"{WEIGHTS_TAG!r}: {hint}"
        )
    if characteristics.nnpfc_purpose & ~1 or characteristics.nnpfc_num_input_pics_minus1:
        purposes = ", ".join(characteristics.purposes)
        raise UnsupportedError(
            f"{what} is for {purposes} from {(characteristics.nnpfc_num_input_pics_minus1 or 0) + 1} pictures, and "
            f"codecnn applies only visual quality improvement of single pictures: {hint}"
        )


def _load_embedded(uri: str, what: str, folder: Path, options: dict[str, Any]) -> "NetworkFilter":
    """Write embedded weights and their card into a temporary folder and load them, all within the limits."""
    from codecnn.filtering import load_filter

    weights, card = _unpacked(uri, what)
    try:
        content = json.loads(card)
        task, network = content.get("task"), content.get("network")
        if content.get("sha256") != hashlib.sha256(weights).hexdigest():
            raise ModelError("the weights are not those of their card (sha256 differs)")
        if task not in ("filter", "integer"):
            raise ModelError(f"its card is of the task {str(task)[:40]!r}, not of a filter")
        _check_architecture(network)
        path = folder / _WEIGHTS_NAME
        path.write_bytes(weights)
        path.with_suffix(".json").write_bytes(card)
        _check_cost(path, task)
        return load_filter(path, **options)
    except CodecnnError as error:
        reason = str(error).replace(str(folder / _WEIGHTS_NAME), "the file").replace(str(folder), "")
        raise ModelError(f"{what}: the embedded weights are refused: {reason}") from error
    except Exception as error:  # invalid options of a network can raise anything
        reason = (str(error).splitlines() or [""])[0][:200]
        raise ModelError(f"{what}: the embedded weights are refused ({type(error).__name__}: {reason})") from error


def _unpacked(uri: str, what: str) -> tuple[bytes, bytes]:
    """Return the weights and the card of a data URI."""
    if len(uri) > MAX_ENCODED_BYTES:
        raise ModelError(f"{what}: the embedded weights have {len(uri)} bytes, more than {MAX_ENCODED_BYTES}")
    try:
        content = base64.b64decode(uri[len(_DATA) :], validate=True)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read(archive, _WEIGHTS_NAME, MAX_WEIGHTS_BYTES), _read(archive, _CARD_NAME, MAX_CARD_BYTES)
    except (
        binascii.Error,
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        EOFError,
        OSError,
        OverflowError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].strip("'\"")[:200]
        raise ModelError(f"{what}: the embedded weights are damaged: {reason}") from error


def _read(archive: zipfile.ZipFile, member: str, limit: int) -> bytes:
    """Decompress a member of an archive, at most `limit` bytes."""
    with archive.open(member) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{member} has more than {limit} bytes")
    return content


def _check_architecture(network: Any) -> None:
    """Raise ModelError unless a card names an architecture of codecnn; code of others is not imported."""
    from codecnn.models import ARCHITECTURES

    if not isinstance(network, str) or network not in ARCHITECTURES:
        raise ModelError(f"their network {str(network)[:80]!r} is no architecture of codecnn")


def _check_cost(path: Path, task: str) -> None:
    """Raise ModelError if embedded weights have too many layers or multiplications."""
    import torch

    from codecnn.filtering.integer import load_integer
    from codecnn.models import complexity, load_model

    if task == "integer":
        graph = load_integer(path)[0].graph
        layers = len(graph.nodes)
        kmac = sum(
            node.tensors["weight"].size / graph.extents[node.name].cell ** 2
            for node in graph.nodes
            if node.op == "conv"
        )
        kmac /= 1000
    else:
        model = load_model(path)[0]
        layers = sum(isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for module in model.modules())
        kmac = complexity(model).kmac_per_pixel if layers <= MAX_LAYERS else 0.0
    if layers > MAX_LAYERS:
        raise ModelError(f"they have {layers} layers, more than {MAX_LAYERS}")
    if kmac > MAX_KMAC:
        raise ModelError(f"they cost {kmac:.0f} kMAC per pixel, more than {MAX_KMAC:.0f}")


def _check_layout(characteristics: Characteristics, filter_: "NetworkFilter", what: str) -> None:
    """Raise ModelError if the weights need other planes than a decoder has, or than the message describes."""
    planes, outputs = set(filter_.planes), tuple(filter_.outputs)
    if foreign := sorted(planes - POST_FILTER_PLANES):
        raise ModelError(f"{what}: the network takes the plane {foreign[0]}, which a post-filter does not have")
    described = (
        characteristics.nnpfc_inp_order_idc,
        characteristics.nnpfc_out_order_idc,
        (characteristics.nnpfc_auxiliary_inp_idc or 0) & 1,
    )
    actual = tensor_layout(planes, outputs)
    if characteristics.nnpfc_property_present_flag and described != actual:
        names = ("nnpfc_inp_order_idc", "nnpfc_out_order_idc", "nnpfc_auxiliary_inp_idc")
        listed = ", ".join(f"{name} {value}" for name, value in zip(names, described, strict=True))
        raise ModelError(f"{what}: the message describes another network than its weights: {listed}")


def tensor_layout(planes: set[str], outputs: tuple[str, ...]) -> tuple[int, int, int]:
    """Return nnpfc_inp_order_idc, nnpfc_out_order_idc and bit 0 of nnpfc_auxiliary_inp_idc of a network."""
    inp_order = 3 if planes & {"rec_u", "rec_v"} else 0
    return inp_order, 0 if outputs == ("y",) else 3, int("qp" in planes)


def _hexadecimal(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=").hex()
