"""Planes of intra pictures reconstructed from the bitstream equal those of the reference decoder."""

import hashlib
import time

import numpy as np
import pytest

from codecnn.base.errors import CodecnnError, ConfigError, FormatError, MissingFileError
from codecnn.codec import read_pictures
from codecnn.vvc.decoder import reconstruct
from tests.helpers.damage import mutated
from tests.helpers.golden import SHARED
from tests.helpers.intra_pictures import golden_pictures, intra_pictures

PICTURES = sorted(path.stem for path in SHARED.glob("golden/intra_pictures/*.npz"))
DAMAGED = [
    "vvc/tiny64x64_ai_qp32.266",
    "vvc/tiny64x64_ai_singletree_qp27.266",
    "vvc/tiny136x72_ai_qp32.266",
    "vvc/chelsea178x130_ai_qp32.266",
]
VTM_KINDS = {"pred": "pred", "unf": "recon", "resid": "resi", "dbf": "ddbf", "sao": "dsao", "rec": "dalf"}
"""Names of the planes in the dumps of VTM; those of the in-loop filters are differences from the plane before."""
INTRA_STREAMS = sorted(
    str(path.relative_to(SHARED / "golden").with_suffix(""))
    for folder in ("vvc", "vvc_vtm")
    for path in SHARED.glob(f"golden/{folder}/*.266")
    if path.stem.startswith(("ai_", "edo0_")) or "_ai_" in path.stem
)


def test_all_golden_pictures_are_tested():
    assert len(PICTURES) == (40 if SHARED.is_dir() else 0)
    assert len(INTRA_STREAMS) == (51 if SHARED.is_dir() else 0)


@pytest.mark.parametrize("name", PICTURES)
def test_planes_equal_the_reference_decoder(golden_file, name):
    folder = "vvc_vtm" if name.startswith(("ai_", "ld")) else "vvc"
    stream = golden_file(f"{folder}/{name}.266")
    golden = golden_pictures(golden_file(f"intra_pictures/{name}.npz"))
    pictures = intra_pictures(stream)
    assert 0 < len(golden) <= len(pictures)
    for expected, picture in zip(golden, pictures, strict=False):
        letters = "yuv" if "recon_U" in expected.planes else "y"
        names = [f"{kind}_{letter}" for kind in VTM_KINDS for letter in letters]
        window = expected.meta["confWin"]
        for edge in ("bs_v", "bs_h"):
            strengths = expected.planes[f"{edge.replace('_', '')}_Y"].repeat(4, 0).repeat(4, 1)
            actual = reconstruct(picture, (edge,))[edge]
            np.testing.assert_array_equal(actual, cropped(strengths, "y", window, expected.meta["chromaFormatIdc"]))
        for plane, samples in reconstruct(picture, names).items():
            kind, letter = plane.split("_")
            vtm_samples = expected.planes[f"{VTM_KINDS[kind]}_{letter.upper()}"]
            if kind in ("dbf", "sao", "rec"):
                for before in ("unf", "dbf", "sao", "rec")[: ("dbf", "sao", "rec").index(kind) + 1]:
                    vtm_samples = vtm_samples + expected.planes[f"{VTM_KINDS[before]}_{letter.upper()}"]
            if plane == "pred_y" and expected.meta["lmcs"]:
                vtm_samples = expected.planes["lmcsinv"][vtm_samples]
            vtm_samples = cropped(vtm_samples, letter, window, expected.meta["chromaFormatIdc"])
            np.testing.assert_array_equal(samples, vtm_samples)


def cropped(plane: np.ndarray, letter: str, window: list[int], chroma: int) -> np.ndarray:
    """Crop a plane to the conformance window, which is in chroma units."""
    right, down = (chroma in (1, 2), chroma == 1) if letter == "y" else (False, False)
    left, end, top, bottom = window
    height, width = plane.shape
    rows = slice(top << down, height - (bottom << down))
    return plane[rows, left << right : width - (end << right)]


@pytest.mark.parametrize("name", INTRA_STREAMS)
def test_decoded_pictures_have_the_md5_of_the_decoder(golden_file, name):
    stream = golden_file(f"{name}.266")
    digest = hashlib.md5()
    for picture in intra_pictures(stream):
        letters = "yuv" if picture.sps.sps_chroma_format_idc else "y"
        for plane in reconstruct(picture, [f"rec_{letter}" for letter in letters]).values():
            digest.update(plane.astype(np.uint8 if picture.sps.bit_depth == 8 else "<u2").tobytes())
    assert digest.hexdigest() == stream.with_suffix(".md5").read_text().split()[0]


def test_intra_pictures_of_a_stream_with_inter_pictures(golden_file):
    pictures = list(read_pictures(golden_file("vvc/tinyclip128x64_ra_qp37.266"), ("unf_y", "pred_v"), "intra"))
    assert [poc for poc, _ in pictures] == [0, 16]
    assert pictures[0][1]["unf_y"].shape == (64, 128)
    assert pictures[0][1]["pred_v"].shape == (32, 64)


def test_missing_planes_files_and_data_are_refused(golden_file, tmp_path):
    stream = golden_file("vvc/tiny64x64_ai_qp32.266")
    with pytest.raises(ConfigError, match="'unf'"):
        list(read_pictures(stream, ("unf",)))
    with pytest.raises(ConfigError, match="no chroma, so no plane unf_u"):
        list(read_pictures(golden_file("vvc/camera_ai_400_qp37.266"), ("unf_u",)))
    with pytest.raises(MissingFileError, match=r"none\.266 does not exist"):
        list(read_pictures(tmp_path / "none.266"))
    cut = tmp_path / "cut.266"
    cut.write_bytes(stream.read_bytes()[:300])
    with pytest.raises(FormatError, match=r"cut\.266, POC 0: slice 0, CTU \d+: "):
        list(read_pictures(cut))


@pytest.mark.parametrize(("seed", "count"), [(3, 100), pytest.param(4, 2000, marks=pytest.mark.slow)])
def test_damaged_streams_give_an_error_or_whole_pictures(golden_file, tmp_path, seed, count):
    rng = np.random.default_rng(seed)
    streams = [path.read_bytes() for path in map(golden_file, DAMAGED)]
    path = tmp_path / "damaged.266"
    messages = []
    for number in range(count):
        path.write_bytes(mutated(streams, rng))
        start = time.process_time()
        try:
            for _, planes in read_pictures(path, ("pred_y", "unf_y", "resid_y", "bs_v"), "intra"):
                assert len({plane.shape for plane in planes.values()}) == 1, (seed, number)
        except CodecnnError as error:
            messages.append(str(error))
        assert time.process_time() - start < 5, (seed, number)
    assert count // 2 < len(messages) < count
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages)
