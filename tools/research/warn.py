"""Compare weights for AV1 with the networks of IVC-Projects/AV1_WARN on video that libaom codes under rate control.

    python tools/research/warn.py clips/*.y4m --warn ../AV1_WARN -m low_cost_17.av1_video_mc -o results/warn

The files of the networks are theirs and are not part of codecnn: fetch the repository yourself and name its folder.
They were made to follow deblocking in the coding loop, in place of CDEF and loop restoration. The script codes each
clip of 8 bits with CDEF and loop restoration and without, and filters the decoded pictures of both streams. Of AV1_WARN
the networks of the nearest --cq-level filter, intra and inter pictures as in its scripts. "Where it gains" leaves a
picture as it is if that is nearer to the original, which an encoder could signal.

The streams stay in the output folder and are used again. Luma PSNR is that of the pictures 0, 5 and 10 with the weights
1, 8 and 8. Everything runs in float32 on one thread.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.base.errors import CodecnnError, ConfigError
from codecnn.base.files import provenance, write_json
from codecnn.codec.headers import output_pictures, read_headers
from codecnn.codec.stream_qp import choose_qps
from codecnn.filtering import NetworkFilter, load_filter, slice_type_plane, temporal_source
from codecnn.pictures.files import Plane, ffmpeg_path, open_video, run
from codecnn.pictures.metrics import bd_rate
from tools.bench._foreign import Tensors, read_tensorflow

RATES = (24, 34, 44, 54)
"""Values of -crf."""
PICTURES = {0: 1 / 17, 5: 8 / 17, 10: 8 / 17}
"""Weight of each measured picture."""
PARAMS = {"all filters": "", "deblocking": "enable-cdef=0:enable-restoration=0"}
"""Parameters of libaom by the in-loop filters that are on."""

ASSIGNED = {
    32: ("WDSR8_qp12_I_set2K", "WDSR8_qp32_B_set2346"),
    43: ("WDSR8_qp22_I_set2K", "WDSR8_qp43_B_set2346"),
    53: ("WDSR8_qp32_I_set3346", "WDSR16_qp53_B_set2346"),
    63: ("WDSR8_qp43_I_set3346", "WDSR16_qp63_B_set2346"),
}
"""Networks of intra and inter pictures by --cq-level (`aom/av1/encoder/TEST_qp*_B.py`)."""

PART = 1024
"""Pixels whose 192 features are computed at once, so that they stay in the cache."""

Restore = Callable[[Plane], Plane]
Curves = dict[str, list[tuple[int, float]]]
"""Points (bits, PSNR in dB) by filters of the encoder and filter."""


def wdsr(tensors: Tensors) -> Restore:
    """Build WDSR8 or WDSR16, as many residual blocks with wide activations (`aom/av1/encoder/WDSR8.py`).

    Args:
        tensors: The checkpoint: convolutions `conv_00`, `conv_01_00` to `conv_01_02` of each block, and the last one.

    Returns:
        A filter of luma samples of 8 bits, shape (h, w).
    """
    kernels = {
        name.rpartition("/")[2]: torch.from_numpy((w.transpose(3, 2, 0, 1) if w.ndim == 4 else w).copy())
        for name, w in tensors.items()
    }
    blocks = sum(name.endswith("_01_w") for name in kernels)

    def convolve(x: Tensor, name: str) -> Tensor:
        return F.conv2d(x, kernels[f"conv_{name}_w"], kernels[f"conv_{name}_b"], padding="same")

    def pointwise(x: Tensor, name: str) -> Tensor:
        return torch.addmm(kernels[f"conv_{name}_b"][:, None], kernels[f"conv_{name}_w"][:, :, 0, 0], x)

    def bottleneck(x: Tensor, block: str) -> Tensor:
        pixels = x.flatten(2)[0]
        parts = [pixels[:, start : start + PART] for start in range(0, pixels.shape[1], PART)]
        narrow = [pointwise(pointwise(part, f"{block}_00").relu_(), f"{block}_01") for part in parts]
        return torch.cat(narrow, 1).view(1, -1, *x.shape[2:])

    @torch.inference_mode()
    def restore(samples: Plane) -> Plane:
        x = torch.from_numpy(samples.astype(np.float32))[None, None] / 255
        y = convolve(x, "00")
        for number in range(1, blocks + 1):
            y = y + convolve(bottleneck(y, f"{number:02d}"), f"{number:02d}_02")
        y = x + convolve(y, f"{blocks + 1:02d}")
        restored: Plane = np.rint(y.clamp(0, 1)[0, 0].numpy() * 255).astype(np.uint8)
        return restored

    return restore


def code(clip: Path, crf: int, params: str, stream: Path) -> None:
    """Code a clip with libaom; everything that is not named has its default."""
    if stream.exists():
        return
    part = stream.with_suffix(".part")
    argv = [ffmpeg_path(), "-v", "error", "-y", "-i", f"file:{clip.absolute()}", "-c:v", "libaom-av1", "-cpu-used", "6"]
    argv += ["-crf", str(crf), "-b:v", "0", "-threads", "1", *(["-aom-params", params] if params else [])]
    run([*argv, "-f", "obu", f"file:{part.absolute()}"], what=f"coding {clip.name}")
    part.replace(stream)


def psnr(samples: Plane, original: Plane) -> float:
    """Compute the PSNR of 8-bit luma in dB."""
    return float(10 * np.log10(255**2 / np.mean((samples.astype(np.float64) - original) ** 2)))


def networks_of(folder: Path) -> dict[str, Restore]:
    """Load the networks of `ASSIGNED` by name."""
    networks = {}
    for name in (name for names in ASSIGNED.values() for name in names):
        index = next((folder / "MODELS" / name).glob("*.index"), None)
        if index is None:
            raise ConfigError(f"{folder} has no MODELS/{name}: fetch IVC-Projects/AV1_WARN and name its folder")
        networks[name] = wdsr(read_tensorflow(index.with_suffix("")))
    return networks


def measure(
    clip: Path, stream: Path, crf: int, networks: dict[str, Restore], models: dict[str, NetworkFilter]
) -> dict[str, float]:
    """Return the weighted luma PSNR in dB of the decoded pictures and of each filter."""
    types = [str(picture.slice_type) for picture in output_pictures(read_headers(stream))]
    qps = choose_qps(stream, all_intra_weights=False).qps
    assigned = ASSIGNED[min(ASSIGNED, key=lambda level: abs(level - crf))]
    sums: dict[str, float] = {}
    with open_video(clip) as source, open_video(stream) as video:
        if len(source) <= max(PICTURES) or source.format.bit_depth != 8:
            raise ConfigError(f"{clip} is no video of 8 bits and {max(PICTURES) + 1} pictures or more: leave it out")
        for number, weight in PICTURES.items():
            decoded, original = video[number].y, source[number].y
            before = psnr(decoded, original)
            after = psnr(networks[assigned[types[number] != "I"]](decoded), original)
            psnrs = {"decoded": before, "AV1_WARN": after, "AV1_WARN where it gains": max(before, after)}
            for name, model in models.items():
                beside = slice_type_plane(model.planes, types[number], video.format)
                beside |= temporal_source(model.planes, video)(number)
                psnrs[name] = psnr(model.luma(decoded, qps[number if len(qps) > 1 else 0], 8, beside), original)
            for name, value in psnrs.items():
                sums[name] = sums.get(name, 0) + weight * value
    return sums


def main() -> None:
    """Code and filter the clips, and print a table of BD-rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path, nargs="+", help="videos of 8 bits and 11 pictures or more")
    parser.add_argument("--warn", type=Path, required=True, help="folder of the repository IVC-Projects/AV1_WARN")
    parser.add_argument("-m", "--model", action="append", default=[], help="name of weights; may be repeated")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the streams and of warn.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    networks = networks_of(options.warn)
    models = {name: load_filter(name, device="cpu") for name in options.model}
    options.output.mkdir(parents=True, exist_ok=True)
    curves: dict[str, Curves] = {}
    with tqdm(total=len(options.clips) * len(RATES) * len(PARAMS), unit="stream", disable=None) as bar:
        for clip in options.clips:
            curve = curves.setdefault(clip.stem, {})
            for crf in RATES:
                for filters, params in PARAMS.items():
                    stream = options.output / f"{clip.stem}_{filters.replace(' ', '_')}_{crf}.obu"
                    code(clip, crf, params, stream)
                    bits = 8 * stream.stat().st_size
                    for name, value in measure(clip, stream, crf, networks, models).items():
                        curve.setdefault(f"{filters}: {name}", []).append((bits, value))
                    bar.update()
            write_json(options.output / "warn.json", {"curves": curves, "provenance": provenance()})
    print_table(curves)


def print_table(curves: Mapping[str, Curves]) -> None:
    """Print the mean and worst BD-rate of each filter over two anchors, from the curves of each clip."""
    print("| in-loop | filter | over the same stream | worst clip | over all filters | worst clip | cells that lose |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for row in next(iter(curves.values())):
        filters, _, name = row.partition(": ")
        cells = [filters, name]
        for anchor in (f"{filters}: decoded", "all filters: decoded"):
            rates = [bd_rate(curve[anchor], curve[row]) for curve in curves.values()]
            cells += [f"{np.mean(rates):+.2f} %", f"{max(rates):+.2f} %"]
        pairs = [zip(curve[f"{filters}: decoded"], curve[row], strict=True) for curve in curves.values()]
        losses = [after < before for pair in pairs for (_, before), (_, after) in pair]
        print(f"| {' | '.join(cells)} | {sum(losses)} of {len(losses)} |")


if __name__ == "__main__":
    try:
        main()
    except CodecnnError as error:
        sys.exit(f"warn: {error}")
