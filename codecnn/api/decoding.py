"""Function that decodes VVC streams, with a CNN filter in the loop where a stream has one."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from codecnn.api.groups import Device, FileName, Frames, complete_weights, parse_names
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, MissingFileError, UsageError
from codecnn.base.options import argument, option, progress_bar, python_only, record, verb
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import extension

if TYPE_CHECKING:
    from codecnn.codec import CheckedPicture


@record
class DecodeOptions:
    """Options of `decode`."""

    stream: Annotated[FileName, argument("VVC stream, also in MP4, MKV or TS.")]
    output: Annotated[
        FileName | None,
        option(
            "-o",
            "--output",
            help="Decoded pictures to write: .y4m or .yuv; - writes Y4M to a pipe; a folder for --planes.",
        ),
    ] = None
    _: KW_ONLY
    planes: Annotated[
        Sequence[str],
        option(
            "--planes",
            metavar="NAMES",
            parse=parse_names,
            help="Write these planes instead of the decoded pictures, e.g. unf_y,mv_l0.",
        ),
    ] = ()
    check: Annotated[
        bool, option("--check", help="Print for each picture whether it equals its hash in the stream.")
    ] = False
    frames: Frames = None
    model: Annotated[
        FileName | None,
        option(
            "-m",
            "--model",
            complete=complete_weights,
            help="Weights of the CNN filter in the loop of the stream (default: those of codecnn with the stream's "
            "SHA-256).",
        ),
    ] = None
    device: Device = "auto"
    picture: Annotated[
        "Callable[[CheckedPicture], None] | None",
        python_only("Called with each picture if `check` is true."),
    ] = None
    progress: Annotated[
        Progress | None, progress_bar("decoding", "picture", "Called with (pictures done, all pictures).")
    ] = None


@verb(DecodeOptions)
def decode(options: DecodeOptions) -> "list[CheckedPicture]":
    """Decode a VVC stream in output order, and prove each picture by its hash in the stream.

    A picture that differs from its hash ends the command with status 1. --check decodes the others, too, and prints a
    line for each picture: POC, slice type, QP, and ok, differs or none (the stream has no hash).

    A stream that `codecnn evaluate-loop` coded is decoded with the CNN filter in the loop, in integers.

    --planes writes what no other decoder gives, of all pictures: pred (prediction), resid (residual), unf (before the
    in-loop filters), dbf (after deblocking), sao (after SAO), rec (decoded), each with _y, _u or _v or without for all
    components; bs_v and bs_h (boundary strengths); mv_l0, mv_l1, ref_idx_l0, ref_idx_l1 and motion_model (vectors in
    1/16 luma sample, POC of the reference picture and model of each 4x4 block). One kind of pictures can be written to
    a .y4m file, other planes go to a folder: a raw file of grey pictures for each plane, e.g.
    unf_y_416x240_10bit_400.yuv (residuals with an offset of 32768 in 16 bits), and motion_00000.npz and so on for
    motion, one for each picture.

    The first run on a machine compiles code for about a minute.

    Returns:
        Properties of the pictures.

    Raises:
        ConfigError: The options do not fit together, or the output cannot hold the planes.
        MissingFileError: The stream does not exist.
        FormatError: The stream is damaged, or without `check` a picture differs from its hash.
    """
    from codecnn.codec import decode_file, has_loop_filter

    stream, output = Path(options.stream), options.output
    if not stream.exists():
        raise MissingFileError(f"{stream} does not exist")
    if output is None and not options.check:
        raise UsageError("give -o FILE to write the pictures, or --check to compare them with their hashes")
    if options.planes and output is None:
        raise UsageError("--planes needs -o: a folder, or a .y4m or .yuv file for pictures of one kind")
    if not options.planes:
        check_outputs([output], [stream, options.model])
    hook = None
    if has_loop_filter(stream):
        from codecnn.models import pick_device

        hook = extension("signalling.loop_filter")(options.model, device=pick_device(options.device))
    elif options.model is not None:
        raise ConfigError(f"{stream} was not coded with a CNN filter in the loop: leave out -m")
    return decode_file(
        stream,
        output,
        options.planes,
        frames=options.frames,
        check=(options.picture or _ignore) if options.check else None,
        progress=options.progress,
        hook=hook,
    )


def _ignore(_picture: "CheckedPicture") -> None:
    """Take a picture that nobody wants to hear of."""
