"""A filter that knows the originals, and rows of results whose BD-rates are known."""

import time

import numpy as np

from codecnn.evaluation import Entry
from codecnn.evaluation.measure import measure_decoded, measure_filtered
from codecnn.evaluation.rows import ResultRow, make_row
from codecnn.filtering import FloatFilter, rounded
from codecnn.models import as_card


class Toward:
    """Goes the share `left` of the way to the nearest original in the left half, `right` of it in the right half.

    `originals` are luma planes (h, w) at the bit depth of the decoded pictures. Without `right` the right half moves as
    far away from the original. Each call adds a line to the file `log` and takes `pause` seconds.
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
        return rounded(picture, self.samples(picture, qp))


def toward_entry(originals, name="half", **options):
    """An entry of the filter `Toward`, whose weights its name stands for."""
    card = as_card({"network": "toward", "kmac_per_pixel": 1.0, "parameters": 2, "sha256": name})
    return Entry(name, card, Toward(originals, **options))


def row_of(model, unit):
    """What an evaluation says of the network `model` on a unit, without decisions."""
    filtered, _ = measure_filtered(FloatFilter(model), unit, ["psnr"], "none", 64)
    return make_row(unit, measure_decoded(unit, ["psnr"]), filtered)


def rate_rows(name, gain, *, flag_share=0.0, class_=None):
    """Four QPs in which 3 dB are worth a factor of two in bits, so that g dB more save 1 - 2^(-g/3) of them.

    `flag_share` of a row's bits is added for flags.
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
