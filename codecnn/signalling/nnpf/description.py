"""Description of weights as a post-filter message."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.files import sha256_file
from codecnn.codec import StreamInfo
from codecnn.signalling.nnpf.carriage import (
    DESCRIBED_PLANES,
    ONNX_TAG,
    POST_FILTER_PLANES,
    WEIGHTS_TAG,
    embedding_uri,
    hash_uri,
    tensor_layout,
)
from codecnn.signalling.nnpf.messages import MODE_URI, Characteristics

if TYPE_CHECKING:
    from codecnn.filtering import NetworkFilter

DEFAULT_PATCH = 128
"""Width and height of patches in luma samples for pictures that cannot be one patch."""

_REPLICATION = 1
"""nnpfc_padding_type: the nearest sample of the picture."""

_MAX_PATCH = 32767
_TYPE_BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "F16": 16, "BF16": 16, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8}


def describe_weights(
    weights: Path,
    filter_: "NetworkFilter",
    info: StreamInfo,
    *,
    number: int = 0,
    mode: str = "uri",
    onnx_uri: str | None = None,
    patch: tuple[int, int] | None = None,
    overlap: int | None = None,
) -> Characteristics:
    """Describe weights as a filter for the pictures of a stream.

    The patch is the picture if its size is a multiple of the network's stride, and the overlap is the network's halo:
    decoders then compute what `codecnn filter` computes. Smaller patches overlap by the network's radius, and only
    samples within the radius of the picture's edge can differ, where patches have repeated samples and the network
    would have zeros. With nnpfc_inp_order_idc 3, patch and overlap count samples of the tensor, i.e. 2x2 luma samples.

    Args:
        weights: The .safetensors file, float or integer, with its card.
        filter_: The same weights, loaded.
        info: Headers of the stream.
        number: nnpfc_id.
        mode: "uri" names the weights by their SHA-256, "payload" embeds them.
        onnx_uri: URI of an ONNX file that is named instead of the weights.
        patch: Width and height of the patches in luma samples.
        overlap: Luma samples around a patch, if other than those above: that of the ONNX file.

    Returns:
        The message.

    Raises:
        ModelError: The network takes planes that decoders do not have after decoding, or does not fit the stream, or an
            ONNX file is named for integers.
        ConfigError: The patch is not a multiple of the network's stride, or too large; or the overlap is smaller than
            the network's halo.
    """
    planes = set(filter_.planes)
    allowed = POST_FILTER_PLANES if onnx_uri is None else DESCRIBED_PLANES
    if foreign := sorted(planes - allowed):
        raise ModelError(
            f"{weights} takes the plane {foreign[0]}, which a decoder does not have after decoding: a post-filter "
            f"takes only {', '.join(sorted(allowed))}"
        )
    if ":" in str(filter_.card.network):
        raise ModelError(f"{weights} is of the network {filter_.card.network}, whose code decoders do not have")
    inp_order, out_order, auxiliary = tensor_layout(planes, tuple(filter_.outputs))
    if inp_order and info.chroma != "420":
        raise ModelError(f"{weights} filters 4:2:0 pictures, and those of the stream are {info.chroma}")
    unit = 2 if inp_order else 1
    size, needed = _patch_and_overlap(filter_, (info.width, info.height), patch)
    overlap = needed if overlap is None else overlap
    if overlap < filter_.geometry.halo or overlap % unit:
        raise ConfigError(
            f"an overlap of {overlap} luma samples does not fit the network: at least its halo, "
            f"{filter_.geometry.halo}, and a multiple of {unit}"
        )
    is_integer, bits, total = _parameters(weights)
    if onnx_uri is not None and is_integer:
        raise ModelError(
            f"{weights} holds integers, and ONNX files for decoders are those of float weights: name these"
        )
    if onnx_uri is not None:
        tag, uri = ONNX_TAG, onnx_uri
    else:
        tag, uri = WEIGHTS_TAG, hash_uri(sha256_file(weights)) if mode == "uri" else embedding_uri(weights)
    parameters = filter_.card.parameters
    return Characteristics(
        nnpfc_purpose=1,
        nnpfc_id=number,
        nnpfc_base_flag=True,
        nnpfc_mode_idc=MODE_URI,
        nnpfc_tag_uri=tag,
        nnpfc_uri=uri,
        nnpfc_property_present_flag=True,
        nnpfc_num_input_pics_minus1=0,
        nnpfc_component_last_flag=False,
        nnpfc_inp_format_idc=0,
        nnpfc_auxiliary_inp_idc=auxiliary,
        nnpfc_inp_order_idc=inp_order,
        nnpfc_out_format_idc=0,
        nnpfc_out_order_idc=out_order,
        nnpfc_separate_colour_description_present_flag=False,
        nnpfc_chroma_loc_info_present_flag=False if out_order else None,
        nnpfc_overlap=overlap // unit,
        nnpfc_constant_patch_size_flag=True,
        nnpfc_patch_width_minus1=size[0] // unit - 1,
        nnpfc_patch_height_minus1=size[1] // unit - 1,
        nnpfc_padding_type=_REPLICATION,
        nnpfc_complexity_info_present_flag=True,
        nnpfc_parameter_type_idc=0 if is_integer else 1,
        nnpfc_log2_parameter_bit_length_minus3=bits.bit_length() - 4,
        nnpfc_num_parameters_idc=0 if parameters is None else _parameters_idc(parameters),
        nnpfc_num_kmac_operations_idc=math.ceil(filter_.card.kmac_per_pixel or 0),
        nnpfc_total_kilobyte_size=ceil_div(total, 1000),
        nnpfc_metadata_extension_num_bits=0,
    )


def _patch_and_overlap(
    filter_: "NetworkFilter", size: tuple[int, int], patch: tuple[int, int] | None
) -> tuple[tuple[int, int], int]:
    """Return width and height of the patches, and their overlap, in luma samples."""
    geometry = filter_.geometry
    stride = geometry.stride
    if patch is None and not any(side % stride or side > _MAX_PATCH for side in size):
        return size, geometry.halo
    width, height = patch or (min(size[0] - size[0] % stride, DEFAULT_PATCH), min(size[1], DEFAULT_PATCH))
    if patch is None:
        width, height = max(width - width % stride, stride), max(height - height % stride, stride)
    for side in (width, height):
        if side < 1 or side % stride or side > _MAX_PATCH:
            raise ConfigError(f"a patch of {width}x{height} is not of sides that are multiples of {stride}")
    return (width, height), ceil_div(geometry.radius, stride) * stride


def _parameters_idc(parameters: int) -> int:
    """Return the smallest nnpfc_num_parameters_idc whose limit, (2048 << idc) - 1, is not below a number."""
    return max((parameters // 2048).bit_length(), 1)


def _parameters(weights: Path) -> tuple[bool, int, int]:
    """Return whether all tensors of a .safetensors file are integers, their largest width in bits, and their bytes."""
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    kinds = {str(entry["dtype"]) for entry in tensors}
    total = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in tensors)
    return not any("F" in kind for kind in kinds), max(_TYPE_BITS[kind] for kind in kinds), total
