"""Compare shipped weights with public filters and their public weights on the same coded pictures.

The files of the filters are theirs and are not part of codecnn: fetch the repositories yourself and name the folders.

  --nrs DIR      IVC-Projects/NRS: EnhNet, for HEVC (Ding et al.)
  --inloop DIR   IVC-Projects/cnn_In-loop_filter: VRCNN, VDSR and SEFCNN, for HEVC (Dai et al. 2017; Ding et al. 2019)
  --nnpf DIR     nokia/fraunhoferhhi-vvdec: the base filter of its neural post-filters, for VVC, luma and chroma
  --aom DIR      m-ab-s/aom, commit 391490a7: the networks for luma of intra pictures, for AV1 and experiments after it;
                 they run in LiteRT (pip install ai-edge-litert)

A filter whose folder is not given, or without a file, is skipped with the reason. Sequences are those of the split
`test` of a store, or some of them (--pictures). Everything runs in float32. The table has luma, as the mean of the
BD-rates of the sequences. With -o an interrupted run continues. With --unfiltered each filter of luma also runs on the
reconstruction before the codec's in-loop filters, which the store must hold: what it would gain in their place.

Examples:
  python tools/benchmark.py rivals stores/hevc_test --nrs ../NRS --inloop ../cnn_In-loop_filter -m low_cost_17.hevc
  python tools/benchmark.py rivals stores/hevc_unf --unfiltered --inloop ../cnn_In-loop_filter -m low_cost_17.hevc_unf
  python tools/benchmark.py rivals stores/diverse_test --nnpf ../fraunhoferhhi-vvdec -m low_cost_17
  python tools/benchmark.py rivals stores/diverse_test_av1 --aom ../aom -m low_cost_17.av1
"""

import dataclasses
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

import codecnn
from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.cli.console import progress
from codecnn.codec import av1_qp
from codecnn.codec.encoders.av1 import LEVELS, quantiser_level
from codecnn.dataset import Store, open_store
from codecnn.filtering.planes import NO_PLANES, Planes, round_samples
from codecnn.models import read_card, weights_path
from codecnn.pictures.files import Picture
from tools.bench._common import Row, make_parser
from tools.bench._foreign import Tensors, read_caffe, read_tensorflow

Network = Callable[[Tensor], Tensor]


def _convolve(x: Tensor, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> Tensor:
    """Convolve with zero padding; `weight` is (outputs, inputs, rows, columns)."""
    kernel = torch.from_numpy(np.array(weight))
    return F.conv2d(x, kernel, torch.from_numpy(np.array(bias)), padding=kernel.shape[2] // 2)


def _layer(x: Tensor, tensors: Tensors, name: str, number: str = "") -> Tensor:
    """Apply a convolution of a TensorFlow checkpoint, whose weights are (rows, columns, inputs, outputs)."""
    weight = tensors[f"{name}_w{number}"].transpose(3, 2, 0, 1)
    return _convolve(x, weight, tensors[f"{name}_b{number}"])


def vrcnn(tensors: Tensors) -> Network:
    """Build VRCNN (Dai et al., "A CNN approach for post-processing in HEVC intra coding", MMM 2017)."""

    def part(x: Tensor, name: str) -> Tensor:
        return _convolve(x, tensors[f"{name}/0"], tensors[f"{name}/1"])

    def run(x: Tensor) -> Tensor:
        y = F.relu(part(x, "conv1"))
        y = F.relu(torch.cat([part(y, "unit1/5x5"), part(y, "unit1/3x3")], 1))
        y = F.relu(torch.cat([part(y, "unit2/1x1"), part(y, "unit2/3x3")], 1))
        return x + part(y, "conv2")

    return run


def sefcnn(tensors: Tensors) -> Network:
    """Build VDSR, or SEFCNN if the checkpoint has its squeeze-and-excitation block.

    Source: Ding et al., "A switchable deep learning approach for in-loop filtering in video coding", IEEE T-CSVT 2019.
    """
    tensors = {name.rpartition("/")[2]: tensor for name, tensor in tensors.items()}
    plain = sorted(name[:-2] for name in tensors if name.count("_") == 2 and name.endswith("_w"))
    block = sorted(name[:-2] for name in tensors if name.count("_") == 3 and name.endswith("_w"))

    def excited(x: Tensor) -> Tensor:
        y = F.relu(_layer(F.relu(_layer(x, tensors, block[0])), tensors, block[1]))
        y = _layer(y, tensors, block[2])
        scale = F.relu(_layer(y.mean((2, 3), keepdim=True), tensors, block[3]))
        return F.relu(y * torch.sigmoid(_layer(scale, tensors, block[4])) + _layer(x, tensors, block[5]))

    def run(x: Tensor) -> Tensor:
        y = x
        for name in plain[:-1]:
            y = F.relu(_layer(y, tensors, name))
        if block:
            y = excited(y)
        return x + _layer(y, tensors, plain[-1])

    return run


def enhnet(tensors: Tensors) -> Network:
    """Build EnhNet (Ding et al., "Neural reference synthesis for inter frame coding", IEEE T-IP 2022)."""

    def run(x: Tensor) -> Tensor:
        y = _layer(x, tensors, "conv_00")
        for index in range(1, 9):
            skip, name = y, f"conv_{index:02d}"
            for _ in range(2):  # the block's weights are used twice
                y = F.relu(_layer(y, tensors, name, "1"))
                y = _layer(_layer(y, tensors, name, "2"), tensors, name, "3")
            y = y + skip
        return x + _layer(y, tensors, "conv_09")

    return run


class LumaFilter:
    """A filter of luma with one network for each of some QPs; a picture is filtered by that of the nearest QP.

    Args:
        name: Name in the table.
        networks: Networks of samples from 0 to 1 by QP.
    """

    def __init__(self, name: str, networks: dict[int, Network]) -> None:
        self.__name__ = name
        self.networks = networks

    def __call__(self, picture: Picture, qp: int) -> Picture:
        """Filter a picture."""
        peak = (1 << picture.bit_depth) - 1
        network = self.networks[min(self.networks, key=lambda known: abs(known - qp))]
        x = torch.from_numpy(picture.y.astype(np.float32))[None, None] / peak
        with torch.inference_mode():
            y = network(x).clamp(0, 1)[0, 0].numpy() * peak
        return Picture((np.rint(y).astype(picture.y.dtype), *picture.planes[1:]), picture.bit_depth)


class InsteadOfLoopFilters:
    """A filter of luma that gets the reconstruction before the in-loop filters instead of the decoded picture.

    Args:
        luma: The filter.
    """

    planes = ("rec_y", "qp", "unf_y")
    outputs = ("y",)

    def __init__(self, luma: LumaFilter) -> None:
        self.luma = luma
        self.__name__ = f"{luma.__name__}, before the in-loop filters"

    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, npt.NDArray[Any]]:
        """Filter the plane `unf_y`; see `PictureFilter.samples`."""
        unfiltered = Picture((beside["unf_y"], *picture.planes[1:]), picture.bit_depth)
        return {"y": self.luma(unfiltered, qp).y}

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """Filter a picture; see `PictureFilter`."""
        return round_samples(picture, self.samples(picture, qp, beside))


class BaseFilter:
    """Nokia's base filter: an ONNX network of blocks of 64x64 chroma samples with a margin of 4.

    Seven planes of half the size enter (four phases of luma, U, V, QP / 63), six leave; the margin repeats the edge.
    """

    BLOCK, MARGIN = 64, 4

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self.__name__ = "nokia_base"
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.entry = self.session.get_inputs()[0].name

    def __call__(self, picture: Picture, qp: int) -> Picture:
        """Filter a picture of 4:2:0 with an even width and height."""
        peak, block, margin = (1 << picture.bit_depth) - 1, self.BLOCK, self.MARGIN
        y, u, v = (plane.astype(np.float32) / peak for plane in picture.planes)
        height, width = u.shape
        planes = np.stack([y[0::2, 0::2], y[0::2, 1::2], y[1::2, 0::2], y[1::2, 1::2], u, v])
        rows, columns = ceil_div(height, block), ceil_div(width, block)
        around = ((0, 0), (margin, margin + rows * block - height), (margin, margin + columns * block - width))
        planes = np.concatenate([planes, np.full((1, height, width), qp / 63, np.float32)])
        padded = np.pad(planes, around, "edge")
        out = np.empty((6, rows * block, columns * block), np.float32)
        for top in range(0, rows * block, block):
            for left in range(0, columns * block, block):
                window = padded[None, :, top : top + block + 2 * margin, left : left + block + 2 * margin]
                out[:, top : top + block, left : left + block] = self.session.run(None, {self.entry: window})[0][0]
        samples = np.rint(np.clip(out[:, :height, :width], 0, 1) * peak).astype(picture.y.dtype)
        luma = np.empty_like(picture.y)
        luma[0::2, 0::2], luma[0::2, 1::2], luma[1::2, 0::2], luma[1::2, 1::2] = samples[:4]
        return Picture((luma, samples[4], samples[5]), picture.bit_depth)


def litert(path: Path) -> Network:
    """Load a network in TensorFlow Lite's format, which a C++ file holds as an array of bytes, to run in LiteRT.

    It takes samples from 0 to 1, shape (1, h, w, 1), and returns the residual.
    """
    from ai_edge_litert.interpreter import Interpreter

    array = re.search(r"\[\] = \{([^}]*)\}", path.read_text())
    if array is None:
        raise FormatError(f"{path} holds no array of bytes")
    interpreter = Interpreter(model_content=bytes(int(text, 16) for text in re.findall(r"0x(..)", array[1])))
    entry = interpreter.get_input_details()[0]["index"]
    exit_ = interpreter.get_output_details()[0]["index"]

    def run(x: Tensor) -> Tensor:
        samples = x[0, 0, :, :, None][None].contiguous().numpy()
        interpreter.resize_tensor_input(entry, samples.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(entry, samples)
        interpreter.invoke()
        return x + torch.from_numpy(interpreter.get_tensor(exit_))[None, ..., 0]

    return run


def nrs_filters(folder: Path) -> dict[str, Any]:
    """Load EnhNet of intra pictures for QP 22 to 42."""
    prefixes = {qp: folder / f"EnhNet/checkpoints/qp{qp}/CNN0/HEVC_RWARN_V2.ckpt" for qp in (22, 27, 32, 37, 42)}
    return {"EnhNet": LumaFilter("EnhNet", {qp: enhnet(read_tensorflow(path)) for qp, path in prefixes.items()})}


def inloop_filters(folder: Path) -> dict[str, Any]:
    """Load VRCNN for QP 22 to 37, and VDSR and SEFCNN, of which each QP has one."""
    caffe = {qp: folder / f"vrcnn/model/QP{qp}{'_I' if qp == 37 else ''}.caffemodel" for qp in (22, 27, 32, 37)}
    names = {22: "VDSR12_qp22/VDSR12_qp22_420", 27: "VDSR16_qp27/VDSR16_qp27_389"}
    names |= {32: "sefcnn_I_qp32/sefcnn_I_qp32_599", 37: "sefcnn_I_qp37/sefcnn_I_qp37_model_570"}
    prefixes = {qp: folder / f"sefcnn/model/{name}.ckpt" for qp, name in names.items()}
    return {
        "VRCNN": LumaFilter("VRCNN", {qp: vrcnn(read_caffe(path)) for qp, path in caffe.items()}),
        "SEFCNN": LumaFilter("SEFCNN", {qp: sefcnn(read_tensorflow(path)) for qp, path in prefixes.items()}),
    }


def nnpf_filters(folder: Path) -> dict[str, Any]:
    """Load Nokia's base filter."""
    return {"nokia_base": BaseFilter(folder / "nnpf/models/model3.onnx")}


def aom_filters(folder: Path) -> dict[str, Any]:
    """Load the networks for luma of intra pictures; each serves a range of quantiser indices (`cnn_tflite.cc`)."""
    starts = {"qp0_90": 0, "qp91_120": 91, "qp121_145": 121, "qp146_175": 146, "qp176_205": 176, "qp206_255": 206}
    loaded = {
        start: litert(folder / f"av1/tflite_models/intra_frame_model/{name}.cc") for name, start in starts.items()
    }
    networks = {
        qp: loaded[max(start for start in loaded if start <= LEVELS[quantiser_level(qp)])]
        for qp in {av1_qp(index) for index in LEVELS[1:]}
    }
    return {"aom_intra": LumaFilter("aom_intra", networks)}


RIVALS: dict[str, tuple[Callable[[Path], dict[str, Any]], dict[str, tuple[str, str]]]] = {
    "nrs": (nrs_filters, {"EnhNet": ("400", "HEVC")}),
    "inloop": (inloop_filters, {"VRCNN": ("54", "HEVC"), "SEFCNN": ("370 to 641", "HEVC")}),
    "aom": (aom_filters, {"aom_intra": ("14.3", "AV1 and experiments after it, between CDEF and loop restoration")}),
    "nnpf": (nnpf_filters, {"nokia_base": ("26", "VVC, as a base to be adapted to the content")}),
}
"""Loader by option, and kMAC/pixel and purpose of each of its filters."""


def main(argv: Sequence[str]) -> list[Row]:
    """Run the benchmark and return no rows, because it measures quality and not time."""
    parser = make_parser("rivals", __doc__)
    parser.add_argument("store", type=Path)
    for option in ("--nrs", "--inloop", "--nnpf", "--aom"):
        parser.add_argument(option, type=Path, help="folder of the repository")
    parser.add_argument("--unfiltered", action="store_true", help="also run filters of luma before the in-loop filters")
    parser.add_argument("-m", "--model", action="append", default=[])
    parser.add_argument("-q", "--qp", default="22,27,32,37")
    parser.add_argument("--pictures", type=int, help="number of sequences, spread evenly over the names")
    parser.add_argument("-o", "--output", type=Path, help="folder that keeps the measured cells")
    options = parser.parse_args(argv)
    filters: dict[str, Any] = {}
    facts: dict[str, tuple[str, str]] = {}
    for option, (load, described) in RIVALS.items():
        folder = getattr(options, option)
        if folder is None:
            print(f"skipped: {', '.join(described)}: give the folder with --{option}")
            continue
        try:
            filters |= load(folder)
            facts |= described
        except (OSError, ImportError, KeyError) as error:
            print(f"skipped: {', '.join(described)}: {error}")
    if options.unfiltered:
        for name, luma in list(filters.items()):
            if isinstance(luma, LumaFilter):
                other = InsteadOfLoopFilters(luma)
                filters[other.__name__], facts[other.__name__] = other, facts[name]
    store = open_store(options.store)
    if options.pictures is not None:
        store = some_sequences(store, options.pictures)
    qps = [int(text) for text in options.qp.split(",")]
    for name in options.model:
        codecs = {codec for trained in read_card(weights_path(name)).trained_on or () for codec in trained.codecs}
        facts[name] = "", " and ".join(sorted(codecs)).upper()
    with tempfile.TemporaryDirectory() as temporary, progress("filtering", "cell") as report:
        output = options.output or Path(temporary)
        models = [*filters.values(), *options.model]
        results = codecnn.evaluate(store, models, output, qps=qps, exact=False, filtering=report)
    print("| filter | kMAC/pixel | made for | BD-rate Y | gain Y, dB | cells that lose |")
    print("|---|---:|---|---:|---:|---:|")
    for result in results:
        gains = [row.gain() for row in result.sequences]
        title = result.title.removeprefix("zoo/")  # shipped weights, beside filters that are no files
        cost, purpose = facts.get(title, ("", ""))
        rate = result.bd_rate["y"]  # of four QPs and more
        columns = (
            title,
            cost or f"{result.kmac_per_pixel:.1f}",
            purpose,
            "-" if rate is None else f"{rate:+.2f} %",
            f"{sum(gains) / len(gains):+.3f}",
            f"{sum(gain < 0 for gain in gains)} of {len(gains)}",
        )
        print(f"| {' | '.join(columns)} |")
    return []


def some_sequences(store: Store, count: int) -> Store:
    """Restrict a store to `count` sequences of the split "test", spread evenly over their names."""
    names = sorted({unit.name for unit in store.units if unit.split == "test"})
    chosen = {names[index * len(names) // count] for index in range(min(count, len(names)))}
    return dataclasses.replace(store, units=tuple(unit for unit in store.units if unit.name in chosen))
