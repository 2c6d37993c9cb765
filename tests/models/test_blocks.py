"""Building blocks against NumPy in float64, and their gradients against finite differences."""

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d
from torch import nn

from codecnn.base.errors import ModelError
from codecnn.models import QpModulation
from codecnn.models.blocks import Branches, DepthwiseBlock, Haar, InverseHaar, QpGain, SeparableBlock
from codecnn.models.families.rdn import RDB, RDN, rdb_macs
from codecnn.models.planes import upsample_chroma
from tests.helpers.networks import ABLATIONS
from tests.helpers.plain_blocks import convolve, linear, rdb, relu

HEIGHT, WIDTH = 4, 6


def transposed(x, layer):
    """Compute a ConvTranspose2d with one output by spreading each input sample over its taps."""
    kernels, s, p = layer.weight.detach().numpy()[:, 0], layer.stride[0], layer.padding[0]
    apart = np.zeros((len(x), (x.shape[1] - 1) * s + 1, (x.shape[2] - 1) * s + 1))
    apart[:, ::s, ::s] = x
    full = sum(convolve2d(plane, kernel) for plane, kernel in zip(apart, kernels, strict=True))
    return full[None, p : len(full) - p, p : full.shape[1] - p] + layer.bias.detach().numpy()


def branches(x, block):
    return sum(convolve(x, branch) for branch in block.branches)


def separable(x, block):
    return x + convolve(convolve(convolve(relu(convolve(x, block.expand)), block.project), block.row), block.column)


def depthwise(x, block):
    return x + convolve(relu(convolve(branches(x, block.depthwise), block.expand)), block.project)


def unshuffle(x, s):
    """Move the samples of each s x s cell into channels, row by row."""
    return np.stack([plane[dy::s, dx::s] for plane in x for dy in range(s) for dx in range(s)])


def shuffle(x, s):
    out = np.zeros((x.shape[0] // s**2, x.shape[1] * s, x.shape[2] * s))
    for index, plane in enumerate(x):
        cell = index % s**2
        out[index // s**2, cell // s :: s, cell % s :: s] = plane
    return out


def hadamard(cell):
    a, b, c, d = cell
    return np.stack([a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d])


def haar(x):
    return np.concatenate([hadamard(unshuffle(plane[None], 2)) / 4 for plane in x])


def alive(module, seed=0):
    """Return `module` in float64 with random weights and biases."""
    torch.manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.double()


BLOCKS = {
    "RDB": (lambda: RDB(3, 2, 2), rdb, 3),
    "RDB without local residual": (lambda: RDB(3, 2, 2, local_residual=False), rdb, 3),
    "RDB with checkpointing": (lambda: RDB(3, 2, 2, checkpoint=True), rdb, 3),
    "branches": (lambda: Branches(2, 3), branches, 2),
    "depthwise branches": (lambda: Branches(4, 4, groups=4), branches, 4),
    "separable": (lambda: SeparableBlock(2, 2), separable, 2),
    "depthwise": (lambda: DepthwiseBlock(2, 2), depthwise, 2),
    "head 3x3": (lambda: nn.Conv2d(2, 3, 3), convolve, 2),
    "head 5x5": (lambda: nn.Conv2d(1, 2, 5, padding=1), convolve, 1),
    "tail, transposed": (lambda: nn.ConvTranspose2d(2, 1, 6, stride=2, padding=2), transposed, 2),
    "unshuffle": (lambda: nn.PixelUnshuffle(2), lambda x, _: unshuffle(x, 2), 2),
    "shuffle": (lambda: nn.PixelShuffle(2), lambda x, _: shuffle(x, 2), 8),
    "Haar": (lambda: Haar(), lambda x, _: haar(x), 2),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_equal_numpy_and_have_correct_gradients(name):
    build, reference, channels = BLOCKS[name]
    block = alive(build())
    x = torch.randn(2, channels, HEIGHT, WIDTH, dtype=torch.float64, requires_grad=True)
    expected = np.stack([reference(sample, block) for sample in x.detach().numpy()])
    np.testing.assert_allclose(block(x).detach().numpy(), expected, rtol=0, atol=1e-12)
    for layout in (torch.contiguous_format, torch.channels_last):
        with torch.no_grad():
            result = block(x.to(memory_format=layout)).numpy()
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)
    parameters = tuple(block.parameters())
    inner = x.detach()[:1, :, :, :4].requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: block(inner), (inner, *parameters))


def test_the_inverse_transform_restores_the_samples():
    x = torch.randn(2, 3, HEIGHT, WIDTH, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(InverseHaar()(Haar()(x)), x, rtol=0, atol=1e-15)
    bands = torch.randn(1, 8, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(InverseHaar(), (bands,))


@pytest.mark.parametrize("kind", ["film", "se"])
def test_modulation_by_qp(kind):
    block = QpModulation(3, kind).double()
    x = torch.randn(2, 3, HEIGHT, WIDTH, dtype=torch.float64)
    qp = torch.tensor([22.0, 37.0], dtype=torch.float64)[:, None, None, None] / 64
    torch.testing.assert_close(block(x, qp), x, rtol=0, atol=1e-15)
    alive(block)
    hidden = relu(linear((qp.numpy().reshape(2, 1) - 0.5) * 4, block.hidden))
    factors = linear(hidden, block.out)[:, :, None, None]
    if kind == "film":
        expected = x.numpy() * (1 + factors[:, :3]) + factors[:, 3:]
    else:
        expected = x.numpy() * 2 / (1 + np.exp(-factors))
    np.testing.assert_allclose(block(x, qp).detach().numpy(), expected, rtol=0, atol=1e-12)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: block(x, qp), (x, *block.parameters()))
    with pytest.raises(ModelError, match=r"one QP a picture.*\(2, 1, 4, 6\)"):
        block(x, qp.expand(2, 1, HEIGHT, WIDTH))


def test_the_gain_is_linear_in_its_logarithm_between_knots():
    gain = alive(QpGain())
    qp = torch.tensor([0, 3, 22, 37, 63], dtype=torch.float64, requires_grad=True)
    knots = gain.log_gain.detach().numpy()
    expected = np.exp(np.interp(qp.detach().numpy(), np.arange(len(knots)) * 4, knots))
    np.testing.assert_allclose(gain(qp / 64).detach().numpy(), expected, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda *_: gain(qp / 64), tuple(gain.parameters()))


def test_upsampled_chroma_has_the_phase_of_the_standard():
    """Chroma rows lie half-way between luma rows, columns on every other luma sample: a ramp remains a ramp."""
    y, x = np.mgrid[:6, :8]
    plane = torch.from_numpy(2.0 * (2 * y + 0.5) + 3.0 * (2 * x))[None, None]
    luma_y, luma_x = np.mgrid[:12, :16]
    expected = 2.0 * luma_y + 3.0 * luma_x
    up = upsample_chroma(plane)[0, 0].numpy()
    np.testing.assert_allclose(up[1:-1, :-1], expected[1:-1, :-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(up[0, :-1], expected[0, :-1] + 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(up[:, -1], up[:, -2], rtol=0, atol=1e-12)
    small = torch.randn(1, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(upsample_chroma, (small,))


@pytest.mark.parametrize("groups", [1, 4])
def test_branches_fold_into_one_convolution(groups):
    block = alive(Branches(4, 8, groups=groups)).float()
    x = torch.randn(2, 4, 9, 7)
    folded, expected = block.folded(), sum(branch(x) for branch in block.branches)
    assert isinstance(folded, nn.Conv2d)
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(folded(x), expected, rtol=0, atol=1e-5)
    gradients, expected_gradients = (
        torch.autograd.grad(output.mean(), block.parameters()) for output in (block(x), expected)
    )
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(folded(x), block(x), rtol=0, atol=1e-5)
    torch.testing.assert_close(folded.double()(x.double()), block.double()(x.double()), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("features", "layers", "growth"), [(32, 6, 24), (8, 1, 3), (5, 4, 7)])
def test_the_closed_form_of_an_rdb_counts_its_weights(features, layers, growth):
    """A convolution that keeps the size uses each weight once per sample."""
    block = RDB(features, layers, growth)
    assert rdb_macs(features, layers, growth) == sum(p.numel() for p in block.parameters() if p.dim() == 4)


@pytest.mark.parametrize("options", [{}, {"shuffle": 2}, *ABLATIONS])
def test_a_whole_rdn_equals_numpy(options):
    """Head, blocks, fusions, residuals, tail, gain and halo are in the right order."""
    model = alive(RDN(features=3, blocks=2, layers=2, growth=2, **options))
    s = options.get("shuffle", 1)
    luma = torch.rand(1, 1, 4 * s + 4 * s, 6 * s + 4 * s, dtype=torch.float64)
    qp = torch.full((1, 1, 1, 1), 0.5, dtype=torch.float64)
    planes = (np.stack([luma[0, 0].numpy(), np.full(luma.shape[2:], 0.5)]) - 0.5) * 4
    x = haar(planes) if "transform" in options else unshuffle(planes, s)
    first = convolve(x, model.head)
    x = first if "head" in options else convolve(first, model.head2)
    kept = []
    for block in model.blocks:
        x = rdb(x, block)
        kept.append(x)
    x = convolve(convolve(np.concatenate(kept), model.fusion), model.fusion2)
    if options.get("global_residual", True):
        x = x + (first if "head" in options else first[:, 1:-1, 1:-1])
    if "upsampling" in options:
        output = transposed(x, model.tail)
    elif "transform" in options:
        output = shuffle(hadamard(convolve(x, model.tail)), 2)
    else:
        output = shuffle(convolve(x, model.tail), s)
    if "output" in options:
        expected = output / 4 + 0.5
    else:
        expected = luma[0, :, 2 * s : -2 * s, 2 * s : -2 * s].numpy() + output * 0.02 * np.exp(
            model.gain.log_gain.detach().numpy()[8]
        )
    result = model({"rec_y": luma, "qp": qp})[0].detach().numpy()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["film", "se"])
def test_a_modulation_beyond_a_range_of_qps_changes_nothing_inside(kind):
    """Beyond the range it starts as at the nearest QP, and grows with the distance to it; inside nothing changes."""
    plain, ranged = alive(QpModulation(3, kind)), QpModulation(3, kind, (22, 42)).double()
    ranged.load_state_dict(plain.state_dict(), strict=False)
    qps = torch.arange(64, dtype=torch.float64)[:, None, None, None] / 64
    x = torch.ones(64, 3, 1, 1, dtype=torch.float64)
    assert torch.equal(ranged(x, qps), plain(x, qps.clamp(22 / 64, 42 / 64)))
    torch.nn.init.constant_(ranged.beyond.weight, 0.25)
    changed = (ranged(x, qps) != plain(x, qps.clamp(22 / 64, 42 / 64))).flatten(1).all(1)
    assert changed.nonzero().flatten().tolist() == [*range(22), *range(43, 64)]
    if kind == "film":
        moved = ranged.factors(qps)[1] - plain.factors(qps.clamp(22 / 64, 42 / 64))[1]
        assert moved[[17, 12, 47], 0, 0, 0].tolist() == pytest.approx([0.25 * 5 / 16, 0.25 * 10 / 16, 0.25 * 5 / 16])
    gain, bounded = QpGain().double(), QpGain(qp_range=(22, 42)).double()
    assert torch.equal(bounded(qps), gain(qps.clamp(22 / 64, 42 / 64)))
