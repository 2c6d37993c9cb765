"""A filter that knows the originals, and rows of results with known BD-rates."""

import time

import numpy as np

from codecnn.evaluation import Entry, ResultRow, make_row, measure_decoded, measure_filtered
from codecnn.filtering import FloatFilter, round_samples
from codecnn.models import as_card


class Toward:
    """Filter that moves the samples towards the most similar original.

    Args:
        originals: Luma planes of shape (h, w), at the bit depth of the decoded pictures.
        left: Share of the coding error that is removed in the left half of the picture.
        right: The same for the right half; None adds the share `left` of the error instead.
        log: File to which each call appends a line.
        pause: Duration of a call in seconds.
    """

    planes, outputs = ("rec_y",), ("y",)

    def __init__(self, originals, left=0.5, right=None, *, log=None, pause=0.0):
        self.originals = [plane.astype(np.float64) for plane in originals]
        self.left, self.right, self.log, self.pause = left, -left if right is None else right, log, pause

    def samples(self, picture, qp, beside=None):
        if self.log:
            with self.log.open("a") as file:
                file.write("call\n")
            time.sleep(self.pause)
        errors = [original - picture.y for original in self.originals if original.shape == picture.y.shape]
        nearest = min(errors, key=lambda error: float(np.square(error).sum()))
        half = picture.y.shape[1] // 2
        return {"y": picture.y + np.hstack([self.left * nearest[:, :half], self.right * nearest[:, half:]])}

    def __call__(self, picture, qp, beside=None):
        return round_samples(picture, self.samples(picture, qp))


def toward_entry(originals, name="half", **options):
    """Create an entry of the filter `Toward`; its name takes the place of the SHA-256 of the weights."""
    card = as_card({"network": "toward", "kmac_per_pixel": 1.0, "parameters": 2, "sha256": name})
    return Entry(name, card, Toward(originals, **options))


def row_of(model, unit):
    """Measure a network on a unit without decisions, as an evaluation does."""
    filtered, _ = measure_filtered(FloatFilter(model), unit, ["psnr"], "none", 64)
    return make_row(unit, measure_decoded(unit, ["psnr"]), filtered)


def rate_rows(name, gain, *, flag_share=0.0, class_=None):
    """Create rows of four QPs in which bits double every 3 dB, so that a gain of g dB saves 1 - 2^(-g/3) of the bits.

    Args:
        name: Name of the sequence.
        gain: Gain of the filter in dB.
        flag_share: Bits of the decisions as a share of the row's bits.
        class_: Class of the sequence.
    """
    rows = []
    for index, qp in enumerate((42, 37, 32, 27)):
        bits, level = 1000 * 2**index, 30.0 + 3 * index
        psnrs = {f"psnr_{plane}": level for plane in "yuv"} | {
            f"psnr_{plane}_filtered": level + gain for plane in "yuv"
        }
        row = {"name": name, "class": class_, "qp": qp, "bits": bits, "flag_bits": flag_share * bits}
        rows.append(ResultRow.model_validate(row | psnrs))
    return rows
