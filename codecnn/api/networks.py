"""Function that exports a network for other programs.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from codecnn.api.groups import Device, FileName, Model, parse_pair
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, ToolMissingError
from codecnn.base.files import atomic_path
from codecnn.base.options import option, progress_bar, record, verb
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import extension

ExportFormat = Literal["onnx", "vapoursynth", "mpv", "pt2", "nnpfc", "sadl", "int8", "int16", "hub"]
"""Formats that `export` writes."""
INTEGERS, POST_FILTER = "Integers (int8, int16)", "Post-filter of H.274 (nnpfc)"
"""Groups of options in --help."""


@record
class ExportOptions:
    """Options of `export`."""

    model: Model
    output: Annotated[
        FileName,
        option(
            "-o",
            "--output",
            help="File: .onnx, .pt2, .safetensors for integers, .glsl for mpv; a new folder for hub.",
        ),
    ]
    form: Annotated[
        ExportFormat,
        option(
            "--format",
            kind=ExportFormat,
            help="onnx; vapoursynth: ONNX with one input tensor for VapourSynth and ffmpeg, and a script; mpv: user "
            "shader of mpv and libplacebo; pt2: program of PyTorch; nnpfc: ONNX with the tensors of post-filter "
            "messages (codecnn nnpf); sadl: ONNX with the operators of SADL, for one QP; int8, int16: integers of 8 or "
            "16 bits; hub: a folder to share, with weights, card and README.md, which hubs show as a model card.",
        ),
    ] = "onnx"
    _: KW_ONLY
    qp: Annotated[
        int | None,
        option(
            "-q",
            "--qp",
            help="Slice QP of a graph for sadl, vapoursynth or nnpfc, e.g. 37, or at which a shader for mpv starts.",
        ),
    ] = None
    fp16: Annotated[
        bool, option("--fp16", help="Compute in float16 in the formats onnx and vapoursynth, for GPUs and NPUs.")
    ] = False
    bit_depth: Annotated[
        int | None,
        option(
            "--bit-depth",
            minimum=8,
            maximum=16,
            help="Bits per sample of integers as ONNX (default: those of the integers), or of nnpfc (default: 10).",
        ),
    ] = None
    store: Annotated[
        FileName | Sequence[FileName] | None,
        option(
            "--store",
            kind=Path,
            collect=list,
            group=INTEGERS,
            help="Store to calibrate integers on; may be repeated. Mode networks need none.",
        ),
    ] = None
    split: Annotated[
        str,
        option("--split", group=INTEGERS, help="Split of the stores to calibrate integers on: train, val or test."),
    ] = "train"
    pictures: Annotated[
        int,
        option("--pictures", minimum=1, group=INTEGERS, help="Number of pictures per QP to calibrate integers on."),
    ] = 4
    accumulator_bits: Annotated[
        int,
        option(
            "--accumulator-bits",
            group=INTEGERS,
            help="Width of the sums of int16, 25 to 32 bits; fewer bits are faster but coarser.",
        ),
    ] = 32
    loss: Annotated[
        float | None,
        option(
            "--loss",
            minimum=0.0,
            group=INTEGERS,
            help="Largest loss in dB on the calibration pictures by the tensors of int8 that stay bytes, e.g. 0.002; "
            "the others get 12 or 13 bits, whose loss comes on top; inf uses 8 bits everywhere (default: 0.004).",
        ),
    ] = None
    patch: Annotated[
        tuple[int, int] | None,
        option(
            "--patch",
            metavar="WxH",
            parse=parse_pair,
            group=POST_FILTER,
            help="Patches of nnpfc in luma samples, e.g. 128x128 (default: any).",
        ),
    ] = None
    overlap: Annotated[
        int | None,
        option("--overlap", group=POST_FILTER, help="Luma samples around a patch of nnpfc (default: the halo)."),
    ] = None
    picture: Annotated[
        tuple[int, int] | None,
        option(
            "--picture",
            metavar="WxH",
            parse=parse_pair,
            group=POST_FILTER,
            help="Pictures of nnpfc that are one patch each, e.g. 1920x1080; the network repeats the samples of their "
            "edges itself.",
        ),
    ] = None
    max_qp: Annotated[
        int, option("--max-qp", group=POST_FILTER, help="QP of strength 1 of nnpfc: 63 for VVC, 51 for HEVC.")
    ] = 63
    adaptable: Annotated[
        bool,
        option(
            "--adaptable",
            group=POST_FILTER,
            help="Add tensors to a graph for nnpfc that an update in the stream changes (codecnn nnpf write --onnx URI "
            "--adapt UPDATE).",
        ),
    ] = False
    device: Device = "auto"
    progress: Annotated[
        Progress | None, progress_bar("calibrating", "picture", "Called with (pictures done, all pictures).")
    ] = None


@verb(ExportOptions)
def export(options: ExportOptions) -> dict[str, Any]:
    """Write a trained network in another format, and check that the file computes the same samples.

    The format hub is a folder by which weights are shared: weights, card, and README.md as a model card. `-m` takes it
    as a folder, and from the Hugging Face hub as hf://OWNER/NAME.

    A shader for mpv is not checked, since it needs a GPU.

    Returns:
        Facts about the file, e.g. "largest_difference_to_pytorch".

    Raises:
        ConfigError: The options do not fit together.
        ToolMissingError: The packages of the extra `export` are not installed.
    """
    from codecnn.dataset import input_files
    from codecnn.filtering.integer import is_integer
    from codecnn.models import card_path, read_card, weights_path

    model, output, form = weights_path(options.model), Path(options.output), options.form
    if form == "hub":
        return _export_shared(model, output, bool(options.store))
    integer = form in ("int8", "int16")
    stores = [options.store] if isinstance(options.store, Path | str) else list(options.store or ())
    beside = [card_path(output)] if integer else [output.with_suffix(".vpy")] if form == "vapoursynth" else []
    check_outputs(
        [output, *beside],
        [model, card_path(model), *input_files(*stores)],
    )
    suffix = ".safetensors" if integer else {"pt2": ".pt2", "mpv": ".glsl"}.get(form, ".onnx")
    if output.suffix != suffix:
        other = {".safetensors": "int8 or int16", ".glsl": "mpv", ".pt2": "pt2"}.get(output.suffix)
        hint = f"use --format {other}" if other else f"use -o {output.with_suffix(suffix)}"
        raise ConfigError(f"{output}: the format {form} is written to a file that ends in {suffix}: {hint}")
    if form == "int16" and card_path(model).is_file() and read_card(model).task == "modes":
        facts: dict[str, Any] = extension("modes.export_integers")(model, output)
        return facts
    if integer != bool(stores):
        raise ConfigError("the formats int8 and int16 need a store to calibrate on (--store), the others take none")
    if options.fp16 and form not in ("onnx", "vapoursynth"):
        raise ConfigError(f"the format {form} has no float16: leave out --fp16, or use --format onnx or vapoursynth")
    if form == "nnpfc":
        return _export_post_filter(model, output, options)
    if options.bit_depth is not None and not (form == "onnx" and is_integer(model)):
        raise ConfigError("the bit depth is an option of nnpfc, and of integers as --model: leave out --bit-depth")
    post_filter = (options.overlap, options.patch, options.picture, options.max_qp, options.adaptable)
    if post_filter != (None, None, None, 63, False):
        raise ConfigError("patch, picture, overlap, largest QP and adaptable are options of the format nnpfc")
    if form == "mpv":
        return _export_shader(model, output, options.qp)
    if integer:
        return _export_integers(model, output, stores, options)
    if form == "pt2":
        return _export_program(model, output, options)
    if form == "vapoursynth":
        return _export_stacked(model, output, options)
    return _export_onnx(model, output, options)


def _export_shared(model: Path, output: Path, with_store: bool) -> dict[str, Any]:
    from codecnn.models import weights_files, write_shared

    if with_store:
        raise ConfigError("the format hub takes integer forms that lie beside the weights, and no --store")
    if output.suffix in (".onnx", ".safetensors") or (output.exists() and not output.is_dir()):
        raise ConfigError(f"{output}: the format hub is written to a folder: name one with -o")
    if output.is_dir() and any(output.iterdir()):
        raise ConfigError(f"{output} holds files already: name a new folder with -o")
    check_outputs([output], weights_files(model))
    return write_shared(model, output)


def _export_integers(model: Path, output: Path, stores: Sequence[FileName], options: ExportOptions) -> dict[str, Any]:
    from codecnn.dataset import open_store
    from codecnn.filtering.integer import DEFAULT_LOSS_DB, integer_network, load_integer, save_integer
    from codecnn.models import load_model, pick_device

    network, card = load_model(model)
    device = pick_device(options.device)
    integers, card_facts = integer_network(
        network.to(device),
        card,
        [open_store(folder) for folder in stores],
        options.split,
        bits=8 if options.form == "int8" else 16,
        pictures=options.pictures,
        accumulator_bits=options.accumulator_bits,
        loss=DEFAULT_LOSS_DB if options.loss is None else options.loss,
        device=device,
        progress=options.progress,
    )
    save_integer(output, integers, card_facts)
    load_integer(output)
    facts = {"bit_depth": integers.bit_depth, "accumulator_bits": integers.accumulator_bits}
    calibration = card_facts["calibration"]
    return facts | {name: calibration[name] for name in ("loss_db", "worst_loss_db") if name in calibration}


def _require_onnx(form: str) -> None:
    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise ToolMissingError(f"the format {form} needs the package {name}: pip install 'codecnn[export]'")


def _export_post_filter(model: Path, output: Path, options: ExportOptions) -> dict[str, Any]:
    _require_onnx("nnpfc")
    from codecnn.models import load_model

    _require_float(model, "nnpfc")
    written: dict[str, Any] = extension("signalling.export_post_filter")(
        output,
        *load_model(model),
        qp=options.qp,
        bit_depth=options.bit_depth or 10,
        patch=options.patch,
        overlap=options.overlap,
        picture=options.picture,
        max_qp=options.max_qp,
        adaptable=options.adaptable,
    )
    return written


def _require_float(model: Path, form: str) -> None:
    from codecnn.filtering.integer import is_integer

    if is_integer(model):
        raise ConfigError(f"{model} holds integers: name the float weights for --format {form}")


def _export_program(model: Path, output: Path, options: ExportOptions) -> dict[str, Any]:
    from codecnn.models import export_program, load_model

    _require_float(model, "pt2")
    if options.qp is not None:
        raise ConfigError("a program of the format pt2 takes the QP as an input: leave out --qp")
    network, _ = load_model(model)
    difference = export_program(output, network)
    return {"inputs": ", ".join(network.planes), "halo": network.halo, "largest_difference_to_pytorch": difference}


def _export_stacked(model: Path, output: Path, options: ExportOptions) -> dict[str, Any]:
    _require_onnx("vapoursynth")
    from codecnn.filtering import export_stacked
    from codecnn.models import load_model

    _require_float(model, "vapoursynth")
    return export_stacked(output, *load_model(model), qp=options.qp, half=options.fp16)


def _export_onnx(model: Path, output: Path, options: ExportOptions) -> dict[str, Any]:
    form, qp = options.form, options.qp
    _require_onnx(form)
    if form == "onnx" and qp is not None:
        raise ConfigError("a graph of the format onnx takes the QP as an input: leave out --qp")
    from codecnn.filtering.integer import is_integer, load_integer
    from codecnn.models import export_onnx, load_model
    from codecnn.models.graph import OPSET

    if is_integer(model):
        from codecnn.filtering.integer import export_integers

        if form == "sadl":
            raise ConfigError(f"{model} already holds integers: use --format onnx to write them")
        if options.fp16:
            raise ConfigError(f"{model} holds integers, which have no float16: leave out --fp16")
        integers, card = load_integer(model)
        bit_depth = integers.bit_depth if options.bit_depth is None else options.bit_depth
        export_integers(output, integers, bit_depth=bit_depth, card=card)
        return {"opset": OPSET, "halo": integers.graph.halo, "bit_depth": bit_depth}
    network, card = load_model(model)
    if form == "sadl" and qp is None and "qp" in network.planes:
        raise ConfigError("the network takes the QP, and a graph for SADL is made for one QP: give it with --qp")
    # A network that does not take the QP gives the same graph for any QP.
    single_qp = (qp or 0) if form == "sadl" else None
    difference = export_onnx(output, network, qp=single_qp, card=card, half=options.fp16)
    return {"opset": OPSET, "halo": network.halo, "largest_difference_to_pytorch": difference}


def _export_shader(model: Path, output: Path, qp: int | None) -> dict[str, Any]:
    from codecnn.filtering import ASSUMED_QP
    from codecnn.filtering.integer import is_integer
    from codecnn.models import build_graph, load_model
    from codecnn.models.graph import missing_planes, mpv_shader

    if is_integer(model):
        raise ConfigError(f"{model} holds integers: name the float weights for --format mpv")
    network, card = load_model(model)
    graph = build_graph(network)
    missing = missing_planes(graph)
    if missing:
        advice = _player_advice(model)
        raise ConfigError(f"players do not have the plane {missing[0]}, which {model.stem} takes: {advice}")
    start = ASSUMED_QP if qp is None else qp
    shader = mpv_shader(graph, re.sub(r"[^\w.+-]", "_", model.stem), start, card.nearest_qp)
    with atomic_path(output) as part:
        part.write_text(shader, encoding="ascii")
    return {"passes": shader.count("//!HOOK"), "qp": start}


def _player_advice(model: Path) -> str:
    """Return which weights to export instead: for the codec, of the architecture, for video or stills, of like cost."""
    from codecnn.filtering import served_codecs
    from codecnn.models import ShippedWeights, shipped_weights
    from codecnn.models.graph import PLAYER_PLANES

    refused = next((weights for weights in shipped_weights() if weights.path == model), None)
    if refused is None:
        return "export weights that take decoded samples and the QP only, e.g. low_cost_17.hevc"
    codec = served_codecs(refused.full_name)[0]

    def distance(weights: ShippedWeights) -> tuple[bool, bool, float]:
        cost, other = (each.card.kmac_per_pixel or 0.0 for each in (weights, refused))
        video, wanted = ("slice_type" in each.card.options["planes"] for each in (weights, refused))
        return weights.architecture != refused.architecture, video != wanted, abs(cost - other)

    playable = [
        weights
        for weights in shipped_weights()
        if {"qp", *PLAYER_PLANES}.issuperset(weights.card.options["planes"])
        and codec in served_codecs(weights.full_name)
    ]
    return f"export {min(playable, key=distance).full_name}"
