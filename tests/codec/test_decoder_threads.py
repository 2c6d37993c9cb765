"""ffmpeg's VVC decoder decodes pictures of some sizes wrongly, at random, if it has several threads."""

import numpy as np

from codecnn.codec import CodecSettings, get_codec
from codecnn.pictures.files import VideoFormat, open_video
from tests.helpers.clips import write_clip


def test_a_vvc_stream_has_the_same_pictures_each_time_it_is_opened(tmp_path):
    form = VideoFormat(64, 66)
    source = write_clip(tmp_path / "clip.yuv", form, 2)
    sequence = get_codec("vvc").encode(source, form, CodecSettings(37, preset="faster"), tmp_path / "out")
    expected = np.fromfile(sequence.decoded, "<u2")
    for _ in range(8):
        with open_video(sequence.bitstream) as video:
            samples = np.concatenate([plane.ravel() for picture in video for plane in picture.planes])
        np.testing.assert_array_equal(samples, expected)
