"""Every kind of still picture is read right, or refused in a sentence."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.errors import FormatError
from codecnn.pictures.files import open_video, rgb_to_ycbcr, summarise_video
from tests.helpers.still_kinds import KINDS, Kind


def luma_of(samples: np.ndarray) -> np.ndarray:
    """Return the full-range luma of samples at 16 bit."""
    if samples.ndim == 3:
        return rgb_to_ycbcr(samples, chroma="444", bit_depth=16, full_range=True).y
    return samples.astype(np.uint16) * (257 if samples.dtype == np.uint8 else 1)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "bands"])
@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_still_is_read_right_or_refused(
    tmp_path: Path, kind: Kind, whole: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        # Bands of 4 rows, or 2 of rotated pictures.
        monkeypatch.setattr("codecnn.pictures.files.bands.WHOLE_SAMPLES", 0)
        monkeypatch.setattr("codecnn.pictures.files.bands.BAND_SAMPLES", 160)
    path = tmp_path / kind.name
    kind.write(path)
    if kind.samples is None:
        with pytest.raises(FormatError, match=kind.refused) as error:
            open_video(path)
        assert str(path) in str(error.value)
        return
    with caplog.at_level(logging.WARNING):
        video = open_video(path, bit_depth=16, full_range=True)
        pictures = list(video)
    height, width = kind.samples[0].shape[:2]
    assert (video.format.width, video.format.height, len(video)) == (width, height, len(kind.samples))
    assert video.format.chroma == ("400" if kind.samples[0].ndim == 2 else "420")
    # The header alone gives the same geometry.
    summary = summarise_video(path, bit_depth=16)
    assert (summary.format, summary.pictures) == (video.format, len(video))
    for samples, picture in zip(kind.samples, pictures, strict=True):
        difference = np.abs(picture.y.astype(int) - luma_of(samples))
        assert difference.max() <= kind.tolerance * 257
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == bool(kind.warning), warnings
    for text in warnings:
        assert re.search(kind.warning, text)
        assert str(path) in text
