"""The figure of the README: its panels show the crop, and its bars are the figures of the cards."""

import numpy as np
from matplotlib.image import imread

from tools import readme_figure


def test_error_map_is_darker_for_the_better_picture(tmp_path):
    rng = np.random.default_rng(1)
    original = rng.integers(300, 700, (512, 512)).astype(np.uint16)
    decoded, filtered = original + 60, original + 10
    readme_figure.draw(original, decoded.astype(np.uint16), filtered.astype(np.uint16), tmp_path / "figure.png")
    picture = imread(tmp_path / "figure.png")[..., 0]
    side = readme_figure.SIZE * readme_figure.ZOOM
    row = slice(picture.shape[0] - side + 20, picture.shape[0] - 20)
    columns = [readme_figure.MARGIN + column * (side + readme_figure.MARGIN) + side // 2 for column in (1, 2)]
    before, after = (picture[row, column] for column in columns)
    np.testing.assert_allclose(before, 600 / 1023, atol=0.01)
    np.testing.assert_allclose(after, 100 / 1023, atol=0.01)
