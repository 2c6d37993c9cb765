"""PSNR of decoded golden streams against the values in the log of their encoder."""

import gzip
import json
import re

import pytest

from codecnn.pictures.files import convert, open_video
from codecnn.pictures.metrics import mean_psnr, mse, psnr

_PICTURE = re.compile(r"^POC\s+(\d+) .*?\[Y +(\S+) dB +U +(\S+) dB +V +(\S+) dB\]", re.MULTILINE)


def test_psnr_equals_the_encoder_log(golden):
    """All pictures and planes agree to 1e-4 dB: 8 and 10 bit, 4:0:0, odd sizes, AI, RA and LD."""
    streams = planes = 0
    kinds = set()
    for recipe in sorted(golden.glob("vvc/*.json")):
        source = json.loads(recipe.read_text())
        log = gzip.decompress(recipe.with_name(f"{recipe.stem}.enclog.gz").read_bytes()).decode()
        logged = {int(poc): values for poc, *values in _PICTURE.findall(log)}
        with (
            open_video(recipe.with_suffix(".266")) as decoded,
            open_video(golden / "sources" / source["src"], **_geometry(source)) as originals,
        ):
            assert len(decoded) == len(logged) <= len(originals), recipe
            for poc, (picture, original) in enumerate(zip(decoded, originals, strict=False)):
                reference = convert(original, picture.bit_depth)
                for a, b, value in zip(reference.planes, picture.planes, logged[poc], strict=False):
                    expected = float(value)
                    assert psnr(a, b, picture.bit_depth) == pytest.approx(expected, abs=1e-4), (recipe.stem, poc)
                    assert mean_psnr([mse(a, b)], picture.bit_depth) == pytest.approx(expected, abs=1e-4)
                    planes += 1
            kinds.add((decoded.format.chroma, decoded.format.bit_depth))
        streams += 1
    assert streams == (28 if golden.name == "golden" else 17), f"only {streams} streams were compared"
    assert planes > 3 * streams
    assert kinds >= {("420", 10), ("420", 8), ("400", 10)}


def _geometry(source):
    """Return the options of `open_video` for a source file."""
    depth, chroma = re.search(r"_(\d+)b(\d{3})\.yuv$", source["src"]).groups()
    return {"size": f"{source['w']}x{source['h']}", "bit_depth": int(depth), "chroma": chroma}
