"""Function that finds the first layer in which two networks differ.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from codecnn.api.groups import COMPUTATION, FileName, RawVideo
from codecnn.base.options import argument, option, record, verb

if TYPE_CHECKING:
    from torch import Tensor

    from codecnn.models import FilterNetwork
    from codecnn.training import LayerDifference

Type = Literal["float32", "float64", "bfloat16"]
"""Precision of a network that is compared; bfloat16 runs under autocast."""


@record
class CompareOptions(RawVideo):
    """Options of `compare`."""

    a: Annotated[
        FileName, argument("First weights: a name from `codecnn models`, or a .safetensors file.", "A", kind=Path)
    ]
    b: Annotated[FileName | None, argument("Second weights (default: those of A).", "[B]", kind=Path)] = None
    _: KW_ONLY
    source: Annotated[
        FileName | None,
        option("-i", "--input", help="Input: a store, or decoded pictures (default: noise)."),
    ] = None
    qp: Annotated[int, option("-q", "--qp", minimum=0, maximum=63, help="Slice QP of the decoded pictures.")] = 37
    tolerance: Annotated[
        float | None,
        option(
            "--tolerance",
            minimum=0,
            help="Allowed difference relative to the largest magnitude of a tensor, e.g. 1e-4 (default: 0, or the "
            "rounding error of the two variants).",
        ),
    ] = None
    device_a: Annotated[
        str, option("--device-a", group=COMPUTATION, help="Device of A: auto, cpu, cuda or cuda:N.")
    ] = "cpu"
    device_b: Annotated[
        str, option("--device-b", group=COMPUTATION, help="Device of B: auto, cpu, cuda or cuda:N.")
    ] = "cpu"
    dtype_a: Annotated[
        Type,
        option("--dtype-a", kind=Type, group=COMPUTATION, help="Precision of A; bfloat16 runs under autocast."),
    ] = "float32"
    dtype_b: Annotated[
        Type,
        option("--dtype-b", kind=Type, group=COMPUTATION, help="Precision of B; bfloat16 runs under autocast."),
    ] = "float32"
    compile_b: Annotated[bool, option("--compile-b", group=COMPUTATION, help="Compile B with torch.compile.")] = False
    prepared_b: Annotated[
        bool,
        option(
            "--prepared-b",
            group=COMPUTATION,
            help="Prepare B as for filtering: fold layers and change the memory layout.",
        ),
    ] = False
    tf32: Annotated[
        bool,
        option("--tf32", group=COMPUTATION, help="Let a GPU multiply float32 in TF32, as training may do."),
    ] = False


@dataclass(frozen=True)
class Comparison:
    """Result of `compare`.

    Attributes:
        tolerance: Allowed difference relative to the largest magnitude of a tensor.
        layers: Differences of all layers that were compared.
        first: The first layer that differs by more than the tolerance, or None.
        not_compared: Layers that are folded into others in B.
    """

    tolerance: float
    layers: "list[LayerDifference]"
    first: "LayerDifference | None"
    not_compared: list[str]


@verb(CompareOptions)
def compare(options: CompareOptions) -> Comparison:
    """Run two networks on the same input and name the first layer whose outputs differ; then the exit status is 1.

    Compares checkpoints, or the same weights on another device, in another precision, compiled, or prepared for
    filtering. See docs/howto/check.md.

    Returns:
        The differences.

    Raises:
        MissingFileError: A file does not exist.
        ModelError: The weights cannot be loaded.
    """
    from codecnn import training
    from codecnn.models import load_model

    first, _ = load_model(options.a)
    second, _ = load_model(options.b or options.a)
    planes = _input(first, options)
    network_a = training.variant(first, device=options.device_a, dtype=options.dtype_a)
    network_b = training.variant(
        second,
        device=options.device_b,
        dtype=options.dtype_b,
        compiled=options.compile_b,
        prepared=options.prepared_b,
    )
    skip = training.folded_layers(second, network_b) if options.prepared_b else []
    tolerance = options.tolerance
    if tolerance is None:
        alike = options.device_a == options.device_b and options.dtype_a == options.dtype_b
        alike = alike and not options.compile_b and not options.prepared_b
        tolerance = training.default_tolerance(alike, "bfloat16" in (options.dtype_a, options.dtype_b), options.tf32)
    with training.exact_float32(not options.tf32):
        rows = training.compare_networks(network_a, network_b, planes, tolerance=tolerance, skip=skip)
    return Comparison(tolerance, rows, training.first_difference(rows), skip)


def _input(model: "FilterNetwork", options: CompareOptions) -> "dict[str, Tensor]":
    from codecnn.dataset import is_store, open_store
    from codecnn.pictures.files import open_video
    from codecnn.training import noise_planes, picture_planes, store_planes

    if options.source is None:
        return noise_planes(model)
    source = Path(options.source)
    if is_store(source):
        return store_planes(model, open_store(source))
    with open_video(source, **options.raw_format()) as video:
        return picture_planes(model, video[0], options.qp)
