"""Functions of networks: train one, and export it for other programs.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codecnn.api.config import load_config
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, ToolMissingError
from codecnn.base.keywords import checked_keywords
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import extension
from codecnn.dataset import input_files, open_store

if TYPE_CHECKING:
    from codecnn.api.config import TrainConfig
    from codecnn.training import TrainingResult

ExportFormat = Literal["onnx", "nnpfc", "sadl", "int8", "int16"]
"""Formats that `export` writes."""


@checked_keywords()
def train(
    config: Path | str, run: Path | str, *, overrides: Sequence[str] = (), resume: bool = False, progress: bool = False
) -> "TrainingResult":
    """Train a network and keep the weights with the best validation result.

    Args:
        config: Configuration file, e.g. "configs/demo.yaml".
        run: Folder of the run.
        overrides: Texts "key.sub=value" that replace values of the configuration.
        resume: Continue from the last checkpoint of the run.
        progress: Show a progress bar.

    Returns:
        The result, with the file of the best weights.

    Raises:
        MissingFileError: The configuration or a store does not exist.
        ConfigError: The configuration is invalid, or the run would replace a file that it reads.
        ModelError: The network and its options or planes do not fit.
    """
    from codecnn.training import train as run_training

    loaded = load_config(config, overrides)
    check_run(config, loaded, Path(run))
    return run_training(loaded, Path(run), resume=resume, progress=progress)


def check_run(config: Path | str, loaded: "TrainConfig", run: Path) -> None:
    """Raise ConfigError if a training would replace its configuration, its data or the weights that it starts from."""
    from codecnn.models import weights_files, weights_path
    from codecnn.training import RUN_FILES

    check_outputs(
        [run / name for name in RUN_FILES],
        [config, *input_files(*loaded.data), *weights_files(*map(weights_path, loaded.weights))],
    )


@checked_keywords()
def export(
    model: Path | str,
    output: Path | str,
    form: ExportFormat = "onnx",
    *,
    qp: int | None = None,
    store: Path | str | Sequence[Path | str] | None = None,
    split: str = "train",
    pictures: int = 4,
    accumulator_bits: int = 32,
    loss: float | None = None,
    device: str = "auto",
    bit_depth: int = 10,
    patch: tuple[int, int] | None = None,
    overlap: int | None = None,
    picture: tuple[int, int] | None = None,
    max_qp: int = 63,
    adaptable: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a trained network in another format and check that the written file computes the same samples.

    Args:
        model: Weights: a file, or a name from `codecnn models`.
        output: File to write: .onnx, or .safetensors for integers.
        form: "onnx"; "nnpfc" (ONNX with the tensors of post-filter messages); "sadl" (ONNX with the operators of SADL,
            for one QP); "int8" or "int16" (integer networks). A file of 8-bit integers can be written as "onnx".
        qp: Slice QP of the graph, for "sadl"; for "nnpfc" instead of the strength that a decoder passes.
        store: Stores to calibrate integers on. Mode networks are written as "int16" and need none.
        split: Split of the stores to calibrate on.
        pictures: Number of pictures for each QP to calibrate on.
        accumulator_bits: Width of the sums of "int16", 25 to 32 bits.
        loss: Largest loss in dB of "int8" on the calibration pictures; None takes the default of
            `codecnn.filtering.integer`.
        device: "auto", "cpu", "cuda" or "cuda:N".
        bit_depth: Bit depth of the samples, for "nnpfc".
        patch: Width and height of the patches in luma samples, for "nnpfc"; None allows any size.
        overlap: Luma samples around a patch, for "nnpfc"; None is the halo of the network.
        picture: Width and height of pictures that are one patch each, for "nnpfc"; the network repeats the samples of
            their edges itself.
        max_qp: QP of strength 1, for "nnpfc": 63 for VVC, 51 for HEVC.
        adaptable: Add tensors that updates for other decoders change, for "nnpfc"; see `write_filter`.
        progress: Called with (pictures done, all pictures) of the calibration.

    Returns:
        Facts about the file, e.g. "largest_difference_to_pytorch".

    Raises:
        ConfigError: The options do not fit together.
        ToolMissingError: The packages of the extra `export` are not installed.
    """
    from codecnn.models import card_path, read_card, weights_path

    model, output = weights_path(model), Path(output)
    integer = form in ("int8", "int16")
    stores = [store] if isinstance(store, Path | str) else store or []
    check_outputs(
        [output, card_path(output)] if integer else [output],
        [model, card_path(model), *input_files(*stores)],
    )
    suffix = ".safetensors" if integer else ".onnx"
    if output.suffix != suffix:
        hint = "; for integers use --format int16 or int8" if output.suffix == ".safetensors" else ""
        raise ConfigError(f"{output}: the format {form} is written to a file that ends in {suffix}{hint}")
    if form == "int16" and card_path(model).is_file() and read_card(model).task == "modes":
        facts: dict[str, Any] = extension("modes.export_integers")(model, output)
        return facts
    if integer != bool(stores):
        raise ConfigError("the formats int8 and int16 need a store to calibrate on (--store), the others take none")
    if form == "nnpfc":
        return _export_post_filter(
            model,
            output,
            qp=qp,
            bit_depth=bit_depth,
            patch=patch,
            overlap=overlap,
            picture=picture,
            max_qp=max_qp,
            adaptable=adaptable,
        )
    if (bit_depth, patch, overlap, picture, max_qp, adaptable) != (10, None, None, None, 63, False):
        raise ConfigError(
            "bit depth, patch, picture, overlap, largest QP and adaptable are options of the format nnpfc"
        )
    if not stores:
        return _export_onnx(model, output, form, qp)
    from codecnn.filtering.integer import DEFAULT_LOSS_DB, integer_network, load_integer, save_integer
    from codecnn.models import load_model, pick_device

    network, card = load_model(model)
    torch_device = pick_device(device)
    integers, card_facts = integer_network(
        network.to(torch_device),
        card,
        [open_store(folder) for folder in stores],
        split,
        bits=8 if form == "int8" else 16,
        pictures=pictures,
        accumulator_bits=accumulator_bits,
        loss=DEFAULT_LOSS_DB if loss is None else loss,
        device=torch_device,
        progress=progress,
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


def _export_post_filter(model: Path, output: Path, **options: Any) -> dict[str, Any]:
    _require_onnx("nnpfc")
    from codecnn.filtering.integer import is_integer
    from codecnn.models import load_model

    if is_integer(model):
        raise ConfigError(f"{model} holds integers: name the float weights for --format nnpfc")
    written: dict[str, Any] = extension("signalling.export_post_filter")(output, *load_model(model), **options)
    return written


def _export_onnx(model: Path, output: Path, form: ExportFormat, qp: int | None) -> dict[str, Any]:
    _require_onnx(form)
    if form == "onnx" and qp is not None:
        raise ConfigError("a graph of the format onnx takes the QP as an input: leave out --qp")
    from codecnn.filtering.integer import is_integer, load_integer
    from codecnn.models import export_onnx, load_model
    from codecnn.models.graph import OPSET, TRACED_OPSET

    if is_integer(model):
        from codecnn.filtering.integer import export_integers

        if form == "sadl":
            raise ConfigError(f"{model} already holds integers: use --format onnx to write them")
        integers, _ = load_integer(model)
        export_integers(output, integers)
        return {"opset": OPSET, "bit_depth": integers.bit_depth}
    network, _ = load_model(model)
    if form == "sadl" and qp is None and "qp" in network.planes:
        raise ConfigError("the network takes the QP, and a graph for SADL is made for one QP: give it with --qp")
    # A network that does not take the QP gives the same graph for any QP.
    difference = export_onnx(output, network, qp=(qp or 0) if form == "sadl" else None)
    opset = OPSET if form == "sadl" or network.has_graph else TRACED_OPSET
    return {"opset": opset, "largest_difference_to_pytorch": difference}
