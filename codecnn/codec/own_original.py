"""Whether decoded pictures are those of their original at their slice QPs, where no encoder's log tells their PSNR.

What a codec leaves is told by the original and the quantisation step: of a transform coefficient c it leaves about
step²/12 (uniform quantisation), or c² where that is less and c becomes 0 (reverse water-filling: Cover and Thomas,
"Elements of Information Theory", 2006, clause 10.3.3).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn

from codecnn.errors import ConfigError
from codecnn.video import Picture, Video

BLOCK = 8
"""Side of the blocks whose DCT the expected error is of."""

MOST = 6.0
"""Luma MSE, as a multiple of the expected one, that is taken for a codec's own.

Measured: 650 pictures of many origins in all intra by libvvenc at constant QPs 22 to 42 have 0.42 to 1.53; golden
streams of libvvenc and x265 in all intra, random access and low delay 0.30 to 1.43; two clips by x265 with rate factor
18 to 40 and psychovisual decisions 0.49 to 1.95, and by libvvenc with perceptual adaptation, which codes at other QPs
than the slice's, 0.33 to 3.83. Pictures of the 650 against others of their size and QP (475 pairs) have 23 at least.
"""

LEAST = 0.2
"""The same from below, of the pictures with the lowest slice QP: others may copy what was coded better.

Those of the streams above have 0.42 at least. Of 50 pictures at five QPs each a stated QP that is 15 too low is told by
MOST for 99 %, one 10 too low for 42 %; one that is 20 too high by LEAST for 76 %, 15 for 59 %, 10 for 10 %; one that is
5 off never.
"""

_ROUNDING = 0.25
"""MSE at 8 bit that is always taken: three times that of rounding to whole samples."""

_NEARER = -0.5
"""Of what two originals in turn differ by: how much nearer to the other one decoded pictures must be to belong to it.

A picture that is coded from its own original has about 1, from the other -1, and one between them 0: a still scene
whose noise is not coded. Measured on the streams above that have several pictures: 0.58 to 0.98.
"""

_Luma = npt.NDArray[np.float64]


def expected_mse(luma: _Luma, qp: int) -> float:
    """What a codec at slice QP `qp` is expected to leave of a picture's luma, (h, w) in samples of 8 bit: MSE.

    The step is 2^((QP - 4) / 6) (H.265 clause 8.6.4.2; H.266 clause 8.7.3), of coefficients of an orthonormal DCT.
    """
    height, width = (extent // BLOCK * BLOCK for extent in luma.shape)
    blocks = luma[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK)
    energy = dctn(blocks, axes=(1, 3), norm="ortho") ** 2
    # Means are predicted from block to block: a flat picture leaves no error.
    energy[:, 0, :, 0] = 0
    return float(np.minimum(energy, 2.0 ** ((qp - 4) / 3) / 12).mean())


def prove_own_original(name: str, originals: Video, decoded: Video, qps: Sequence[int], *, all_intra: bool) -> None:
    """Raise ConfigError unless the luma of `decoded` can be what a codec at the slice QPs `qps` makes of `originals`.

    Its MSE lies between LEAST and MOST times `expected_mse`, and it is no nearer to the originals before and after its
    own. In all intra each picture is held against its neighbours; else all together, for a picture that copies the one
    before it is indeed nearer to that. U and V lie where those of the original do. `name` is what errors call the file.
    """
    nearer, between = {-1: 0.0, 1: 0.0}, {-1: 0.0, 1: 0.0}
    problems: list[str] = []
    for number, qp in enumerate(qps):
        what = f"{name}, picture {number},"
        own, output = _luma(originals, number), _luma(decoded, number)
        error, expected = _mse(own, output), expected_mse(own, qp)
        too_far = error > MOST * expected + _ROUNDING
        for step in nearer:
            if 0 <= number + step < len(originals):
                other = _luma(originals, number + step)
                excess, apart = _mse(other, output) - error, _mse(other, own)
                if (too_far or all_intra) and excess < _NEARER * apart:
                    raise ConfigError(_shifted(what, step))
                nearer[step] += excess
                between[step] += apart
        told = f"{what} differs from its original by a luma MSE of {error:.2f} (at 8 bit), and QP {qp} leaves about"
        if too_far:
            problems.append(f"{told} {expected:.2f}: the original or its samples are others, or the QP is higher")
        if qp == min(qps) and error + _ROUNDING < LEAST * expected:
            problems.append(f"{told} {expected:.2f}: the QP is lower, or nothing was coded")
        if _has_interchanged_chroma(originals[number], decoded[number]):
            problems.append(f"{what} has U and V in other places than its original")
    # A shift is the reason of large errors, so it is told first.
    for step, excess in nearer.items():
        if excess < _NEARER * between[step]:
            raise ConfigError(_shifted(name, step))
    if problems:
        raise ConfigError(problems[0])


def _has_interchanged_chroma(original: Picture, decoded: Picture) -> bool:
    """Whether U and V have changed places, as in the layout that is called YV12."""
    if len(original.planes) == 1:
        return False
    (u, v), (decoded_u, decoded_v) = (
        [plane.astype(np.float64) for plane in one.planes[1:]] for one in (original, decoded)
    )
    own, other = _mse(u, decoded_u) + _mse(v, decoded_v), _mse(u, decoded_v) + _mse(v, decoded_u)
    return other - own < _NEARER * 2 * _mse(u, v)


def _shifted(name: str, step: int) -> str:
    return f"{name} is nearer to the original one picture {'later' if step > 0 else 'earlier'} than to its own"


def _luma(video: Video, number: int) -> _Luma:
    scaled: _Luma = video[number].y / 2.0 ** (video.format.bit_depth - 8)
    return scaled


def _mse(a: _Luma, b: _Luma) -> float:
    return float(np.mean((a - b) ** 2))
