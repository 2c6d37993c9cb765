"""Stand-in programs for VTM, HM and vvencapp: their command line and log, with the encoders of ffmpeg.

`write_program` writes them as executables. Hashes and PSNR are computed here without codecnn. A `mode` introduces one
fault; the folder `cache` keeps coded streams, because many tests code the same pictures.
"""

# ruff: noqa: T201 - these are programs, and what they print is what codecnn reads.

import hashlib
import json
import math
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

BANNERS = {
    "vtm": "VVCSoftware: VTM {} Version 23.13 [Linux][GCC 12.2.0][64 bit] [SIMD=AVX2] ",
    "hm": "HM software: {} Version [16.20] (including RExt)[Linux][GCC 12.2.0][64 bit] ",
    "vvencapp": "vvencapp: VVenC, the Fraunhofer H.266/VVC Encoder, version 1.13.0 [Linux][clang 18][SIMD=AVX2]",
}
HEADS = {"vtm": "LId:  0 TId: 0 ( IDR_N_LP, ", "hm": "TId: 0 ( ", "vvencapp": "TId: 0 (  IDR_N_LP, "}
LAYOUTS = {"420": "yuv420p", "400": "gray"}
LIBVVENC = "IntraPeriod=1:DecodingRefreshType=idr:IntraQPOffset=0:GOPQPA=0:MCTF=0:BIM=0:LookAhead=0:STA=0:EDO=0"
LIBX265 = "ipratio=1:keyint=1:aq-mode=0:cutree=0:log-level=none"


def write_program(path, role, **setup):
    """Write an executable that runs `encoder` or `decoder` of this file with `setup`; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import standin_programs\nstandin_programs.{role}(**json.loads({json.dumps(setup)!r}))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def arguments(options, banner):
    """Parse the command line like program_options_lite: help and status 1 without arguments, unknown names fatal."""
    print("\n" + banner)
    if len(sys.argv) < 2 or sys.argv[1] in ("--help", "--fullhelp"):
        print("\n".join(f"  -x,   --{name}   text that mentions --Nothing" for name in options))
        sys.exit(1)
    values = {}
    rest = iter(sys.argv[1:])
    for part in rest:
        name, _, value = part.removeprefix("--").partition("=")
        if part.startswith("--") and name not in options:
            sys.exit(f"Unknown option: `{name}' (value:`{value}')")
        values[name] = value if part.startswith("--") else next(rest)
    return values


def run_ffmpeg(ffmpeg, *argv):
    subprocess.run([ffmpeg, "-hide_banner", "-loglevel", "error", "-y", *argv], check=True)


def read_pictures(path, chroma, width, height, depth):
    """Return the flat planes of each picture."""
    import numpy as np

    luma = width * height
    both = luma * {"400": 0, "420": 1, "422": 2, "444": 4}[chroma] // 2
    data = np.fromfile(path, "u1" if depth == 8 else "<u2").reshape(-1, luma + both)
    return [np.split(row, [luma, luma + both // 2] if both else []) for row in data]


def test_model_values(kind, values):
    """Return the arguments under the names of VTM, also for vvencapp."""
    if kind != "vvencapp":
        # The configuration file comes first, by its absolute path; its QP 50 must be overridden by --QP.
        assert sys.argv[1] == "-c"
        assert Path(values["-c"]).is_absolute()
        assert Path(values["-c"]).read_text().startswith("QP : 50")
        return values
    names = {"InputFile": "input", "BitstreamFile": "output", "FramesToBeEncoded": "frames", "QP": "qp"}
    words = {name: values[option] for name, option in names.items()}
    words["SourceWidth"], words["SourceHeight"] = values["size"].split("x")
    words["InputBitDepth"] = "10" if values["format"] == "yuv420_10" else "8"
    words |= {"InternalBitDepth": "10", "InputChromaFormat": "420"}
    return words | dict(item.split("=") for item in values["additional"].split(":"))


def encoder(kind, mode, options, ffmpeg, cache):
    values = test_model_values(kind, arguments(options, BANNERS[kind].format("Encoder")))
    if mode == "fails":
        print("Error: the picture is not to my liking")
        sys.exit(1)
    if mode == "garbage":
        print("POC POC POC")
        sys.exit(0)
    width, height, qp = (int(values[name]) for name in ("SourceWidth", "SourceHeight", "QP"))
    chroma, internal = values["InputChromaFormat"], int(values["InternalBitDepth"])
    depth, stream = int(values["InputBitDepth"]), Path(values["BitstreamFile"])
    originals = read_pictures(values["InputFile"], chroma, width, height, depth)
    originals = [[plane.astype("u2") << (internal - depth) for plane in planes] for planes in originals]
    samples = b"".join(plane.astype("u1" if internal == 8 else "<u2").tobytes() for p in originals for plane in p)
    off = "1" in (values.get("DeblockingFilterDisable"), values.get("LoopFilterDisable"))
    layout = LAYOUTS[chroma] + ("10le" if internal == 10 else "")
    raw = ("-f", "rawvideo", "-pix_fmt", layout, "-s", f"{width}x{height}", "-i", "file:widened.yuv")
    if kind == "hm":
        params = f"qp={qp}:{LIBX265}" + (":no-deblock=1:no-sao=1" if off else "")
        coder = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", params, "-f", "hevc")
    else:
        params = LIBVVENC + (":LoopFilterDisable=1:SAO=0:ALF=0:CCALF=0" if off else "")
        coder = ("-c:v", "libvvenc", "-preset", "faster", "-qp", str(qp), "-qpa", "0", "-vvenc-params", params)
    kept = Path(cache) / hashlib.md5(repr((raw, coder)).encode() + samples).hexdigest()
    if not kept.exists():
        Path("widened.yuv").write_bytes(samples)
        run_ffmpeg(ffmpeg, *raw, *coder, "file:coded" + stream.suffix)
        # With several threads ffmpeg sometimes decodes a VVC picture of 64x66 wrongly.
        decoder = ("-threads", "1", "-i", "file:coded" + stream.suffix)
        run_ffmpeg(ffmpeg, *decoder, "-f", "rawvideo", "-pix_fmt", layout, "file:decoded.yuv")
        kept.mkdir(parents=True)
        for name in ("coded" + stream.suffix, "decoded.yuv"):
            shutil.move(name, kept)
        Path("widened.yuv").unlink()
    decoded = read_pictures(kept / "decoded.yuv", chroma, width, height, internal)
    if mode != "nostream":
        shutil.copy(kept / ("coded" + stream.suffix), stream)
    if "ReconFile" in values:
        reconstruction = (kept / "decoded.yuv").read_bytes()
        Path(values["ReconFile"]).write_bytes(
            reconstruction[:-2] + b"\1\1" if mode == "reconstruction" else reconstruction
        )
    print("Input          File          : " + values["InputFile"])
    print("TOOL CFG: IBD:1 HAD:1\n started @ Sat Jul 29 22:33:37 2023")
    for poc, planes in enumerate(decoded[:-1] if mode == "fewer" else decoded):
        bits = (kept / ("coded" + stream.suffix)).stat().st_size * 8 // len(decoded)
        print(picture_line(kind, mode, poc, qp, bits, planes, originals[poc], 255 * 2 ** (internal - 8)))


def picture_line(kind, mode, poc, qp, bits, planes, originals, peak):
    psnr = []
    for plane, original in zip(planes, originals, strict=True):
        mse = float(((plane.astype(float) - original) ** 2).mean())
        psnr.append(10 * math.log10(peak**2 / mse) if mse else 999.99)
    psnr = [*psnr, 0.0, 0.0][:3]
    hashes = [hashlib.md5(plane.tobytes()).hexdigest() for plane in planes]
    if mode == "md5":
        hashes[-1] = "0" * 32
    if mode == "psnr":
        psnr[0] += 0.001
    line = f"POC {poc:4d} {HEADS[kind]}I-SLICE, QP {qp - (mode == 'qp')} ) {bits:10d} bits"
    line += " [Y {:6.4f} dB    U {:6.4f} dB    V {:6.4f} dB]".format(*psnr) + f" [ET {os.getpid():5d} ] [L0] [L1]"
    return line if mode == "nohash" else f"{line} [MD5:{','.join(hashes)}]"


TRACE = "# VTMBMS Block Statistics\n# Sequence size: [64x 64]\n" + "".join(
    f"BlockStat: POC 0 @(  32,   0) [32x32] {name}={value}\n"
    for name, value in {"Depth": 1, "QT_Depth": 1, "MT_Depth": 0, "PredMode": 1, "QP": 37}.items()
)


def decoder(mode, options, ffmpeg):
    values = arguments(options, BANNERS["vtm"].format("Decoder"))
    if "-o" in values:
        run_ffmpeg(ffmpeg, "-i", values["-b"], "-f", "rawvideo", values["-o"])
    if "TraceFile" in values:
        assert values["TraceRule"] == "D_BLOCK_STATISTICS_ALL:poc>=0"
        Path(values["TraceFile"]).write_text("" if mode == "notrace" else TRACE)
    if "prediction" in values and mode != "noprediction":
        run_ffmpeg(ffmpeg, "-i", values["-b"], "-f", "rawvideo", values["prediction"])
        data = Path(values["prediction"]).read_bytes()
        end = {"short": -1, "fewer": len(data) // 2}.get(mode, len(data))
        Path(values["prediction"]).write_bytes(data[:end])
