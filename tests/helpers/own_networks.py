"""Networks and a loss as a user of codecnn would write them, without anything of codecnn."""

import torch
from torch import nn
from torch.nn import functional as F

REFERENCE = "tests.helpers.own_networks:Net"
"""Name of `Net` in configurations."""

SOURCE = '''
import torch
from torch import nn


class Net(nn.Module):
    """Two layers."""

    planes = ("rec_y", "qp")

    def __init__(self, features=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, features, 3), nn.ReLU(), nn.Conv2d(features, 1, 3))

    def forward(self, planes):
        y = planes["rec_y"]
        return y[:, :, 2:-2, 2:-2] + 0.02 * self.layers(torch.cat([y, planes["qp"].expand_as(y)], dim=1))


def loss(filtered, batch):
    error = ((filtered["y"] - batch["orig_y"]) * batch["valid"]).square().mean(dim=(1, 2, 3))
    return (error / batch["picture_mse"] * batch["weight"]).mean()
'''
"""Module of a network and a loss, for a file of the user."""


class Net(nn.Module):
    """Two unpadded layers: halo 2."""

    planes = ("rec_y", "qp")

    def __init__(self, features=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, features, 3), nn.ReLU(), nn.Conv2d(features, 1, 3))

    def residual(self, planes):
        y = planes["rec_y"]
        return 0.02 * self.layers(torch.cat([y, planes["qp"].expand_as(y)], dim=1))

    def forward(self, planes):
        return planes["rec_y"][:, :, 2:-2, 2:-2] + self.residual(planes)


class Shuffled(nn.Module):
    """Two padded layers with batch normalisation at half the resolution: stride 2."""

    planes = ("rec_y",)

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1)]
        self.layers = nn.Sequential(nn.PixelUnshuffle(2), *layers, nn.PixelShuffle(2))

    def forward(self, planes):
        return planes["rec_y"] + 0.02 * self.layers(planes["rec_y"])


class Strided(nn.Module):
    """Two strided layers and two transposed ones: stride 4."""

    planes = ("rec_y",)

    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(4, 4, 4, 2, 1), nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, planes):
        down = self.down(planes["rec_y"]).relu()
        return planes["rec_y"] + 0.02 * self.last(torch.cat([down, self.up(self.deep(down).relu())], dim=1))


class PaddedInside(nn.Module):
    """Takes every size and averages cells of 4x4 samples: only windows at multiples of 4 give the same samples."""

    planes = ("rec_y",)

    def forward(self, planes):
        y = planes["rec_y"]
        height, width = y.shape[2:]
        means = F.avg_pool2d(F.pad(y, (0, -width % 4, 0, -height % 4), mode="replicate"), 4)
        return y + 0.02 * F.interpolate(means, scale_factor=4.0)[:, :, :height, :width]


class Colour(nn.Module):
    """Filters luma and chroma."""

    planes = ("rec_y", "rec_u", "rec_v", "qp")

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 5, padding=2)

    def forward(self, planes):
        luma = F.avg_pool2d(planes["rec_y"], 2)
        residual = 0.02 * self.layer(torch.cat([luma, planes["rec_u"], planes["rec_v"]], dim=1))
        y, u, v = residual.split(1, dim=1)
        return {
            "y": planes["rec_y"] + F.interpolate(y, scale_factor=2.0),
            "u": planes["rec_u"] + u,
            "v": planes["rec_v"] + v,
        }


class Linear(Net):
    """Has its weights in matrix products, not in convolutions, and reads the value of a tensor."""

    def __init__(self):
        nn.Module.__init__(self)
        self.layer = nn.Linear(16, 16)

    def forward(self, planes):
        factor = 1.0 if planes["qp"].mean().item() > 0.5 else 0.5
        cells = F.pixel_unshuffle(planes["rec_y"], 4).movedim(1, -1)
        return planes["rec_y"] + 0.02 * factor * F.pixel_shuffle(self.layer(cells).movedim(-1, 1), 4)


class OnlyResidual(Net):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.layers[-1].weight)
        nn.init.zeros_(self.layers[-1].bias)

    forward = Net.residual


class FromScratch(Net):
    """Predicts the picture itself, far from the decoded one at first."""

    forward = Net.residual


class WholePicture(Net):
    def forward(self, planes):
        return super().forward(planes) + 0.02 * planes["rec_y"].mean(dim=(2, 3), keepdim=True)


class WrongHalo(Net):
    halo = 3


class WrongRadius(Net):
    radius = 1


class NarrowRadius(Shuffled):
    radius = 3


class Unnamed(Net):
    planes = ()


class WrongShapes(Net):
    def forward(self, planes):
        return torch.cat([planes["rec_y"], planes["qp"]], dim=1)


class TwoChannels(Net):
    def forward(self, planes):
        return planes["rec_y"].expand(-1, 2, -1, -1)


class Rounded(Net):
    def forward(self, planes):
        return (planes["rec_y"].detach() * 255).round() / 255


def nothing():
    return 3


def loss(filtered, batch):
    error = ((filtered["y"] - batch["orig_y"]) * batch["valid"]).square().mean(dim=(1, 2, 3))
    return (error / batch["picture_mse"] * batch["weight"]).mean()


class Stateful(Net):
    """Averages with its previous output."""

    def forward(self, planes):
        now = super().forward(planes)
        before = getattr(self, "before", now)
        self.before = now.detach()
        return (now + before) / 2 if before.shape == now.shape else now


class Lazy(Net):
    """The number of its input channels is not known before the first call."""

    def __init__(self):
        super().__init__()
        self.layers[0] = nn.LazyConv2d(4, 3)


class NoLeaf(Net):
    """Its scale is no leaf of the graph of gradients, so that it cannot be copied."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1)) * 2


class Idioms(Net):
    """Replaces, shares, reparametrises and discards parameters while it is created."""

    def __init__(self):
        super().__init__()
        nn.Conv2d(1, 1, 7)
        self.layers[0].weight = nn.Parameter(torch.full((4, 2, 3, 3), 0.1))
        self.before, self.after = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)
        self.after.weight = self.before.weight
        self.layers[2] = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 1, 3))

    def residual(self, planes):
        return self.after(self.before(super().residual(planes)))


class HuberLoss(nn.Module):
    def forward(self, filtered, batch):
        return F.huber_loss(filtered["y"], batch["orig_y"]) * 1e4


def by_patch(filtered, batch):
    return (filtered["y"] - batch["orig_y"]).square().mean(dim=(1, 2, 3))


class RelativePositions(nn.Module):
    """Attention within windows of 4x4 samples, with buffers of every kind, as networks with relative positions have.

    `index` selects the bias of a pair of samples, `far` says which pairs do not see each other, `mask` adds minus
    infinity to them, `span` holds NaN where nothing is defined, and `limits` is a parameter that is not trained.
    """

    planes = ("rec_y", "qp")

    def __init__(self, features=4):
        super().__init__()
        y, x = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        difference = (
            torch.stack([y.flatten(), x.flatten()])[:, :, None] - torch.stack([y.flatten(), x.flatten()])[:, None]
        )
        far = difference.abs().amax(0) > 2
        self.register_buffer("index", (difference[0] + 3) * 7 + difference[1] + 3)
        self.register_buffer("small", difference.to(torch.int8))
        self.register_buffer("far", far)
        self.register_buffer("mask", torch.zeros(16, 16).masked_fill(far, float("-inf")))
        self.register_buffer("span", torch.full((3,), float("nan"), dtype=torch.float64))
        self.limits = nn.Parameter(torch.tensor([float("-inf"), float("inf")]), requires_grad=False)
        self.table = nn.Parameter(torch.randn(49) * 0.1)
        self.query, self.value, self.last = nn.Linear(1, features), nn.Linear(1, features), nn.Linear(features, 1)

    def forward(self, planes):
        y = planes["rec_y"]
        samples = F.pixel_unshuffle(y, 4).permute(0, 2, 3, 1).unsqueeze(4) + planes["qp"].unsqueeze(4)
        query = self.query(samples)
        scores = query @ query.transpose(3, 4) + self.table[self.index] + self.mask
        mixed = scores.maximum(self.limits[0]).minimum(self.limits[1]).softmax(-1) @ self.value(samples)
        return y + 0.02 * F.pixel_shuffle(self.last(mixed).squeeze(4).permute(0, 3, 1, 2), 4)
