"""VMAF by the libvmaf that is built into ffmpeg."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from codecnn.errors import CodecnnError, EncoderError, FormatError
from codecnn.runs import read_json
from codecnn.video import VideoFormat, ffmpeg_path, run

MODEL = "vmaf_v0.6.1"
"""The model for 1080p on a television, libvmaf's default, which papers mean where they name none."""


def vmaf(reference: Path, distorted: Path, form: VideoFormat, *, model: str = MODEL) -> list[float]:
    """VMAF of every picture of the raw YUV file `distorted` against `reference`, both of `form`; 0 to 100.

    libvmaf looks at luma only, and at motion between pictures, so a picture's figure depends on those beside it.
    Raises FormatError where the files hold different numbers of pictures, EncoderError where ffmpeg cannot compare
    them: without libvmaf, for a model that it does not know, or for samples that libvmaf does not take.
    """
    if re.fullmatch(r"[A-Za-z0-9_.]+", model) is None:
        raise FormatError(f"VMAF model {model!r} is not a plain name")
    sizes = {path: path.stat().st_size for path in (reference, distorted)}
    if len(set(sizes.values())) > 1:
        raise FormatError(f"{distorted} has {sizes[distorted]} bytes and {reference} has {sizes[reference]}")
    raw = ["-f", "rawvideo", "-pix_fmt", form.ffmpeg_pix_fmt, "-s", f"{form.width}x{form.height}", "-r", "25"]
    with tempfile.TemporaryDirectory(prefix="codecnn-vmaf-") as folder:
        # Grey pictures are taken for full range, and would be scaled to the limited range of formats libvmaf takes.
        colour = replace(form, chroma="444").ffmpeg_pix_fmt
        planes = f"split=3,mergeplanes=0x001020:{colour}" if form.chroma == "400" else "null"
        # The log's name is relative: the option's syntax has no safe way to quote any path.
        compare = f"libvmaf=model=version={model}:log_fmt=json:log_path=log.json:n_threads=1:shortest=1"
        filters = f"[0:v]{planes}[distorted];[1:v]{planes}[reference];[distorted][reference]{compare}"
        argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-nostats", "-loglevel", "error"]
        for path in (distorted, reference):
            argv += [*raw, "-i", f"file:{path.absolute()}"]
        argv += ["-lavfi", filters, "-f", "null", "-"]
        run(argv, what=f"measuring VMAF of {distorted}", cwd=Path(folder))
        try:
            scores = [float(frame["metrics"]["vmaf"]) for frame in read_json(Path(folder) / "log.json")["frames"]]
        except (CodecnnError, KeyError, TypeError, ValueError) as error:
            raise EncoderError(f"libvmaf told no scores of {distorted}") from error
    pictures = sizes[reference] // form.picture_bytes
    if len(scores) != pictures:
        raise EncoderError(f"libvmaf told {len(scores)} scores of the {pictures} pictures of {distorted}")
    return scores
