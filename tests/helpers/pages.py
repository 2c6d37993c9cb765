"""Decompression of the pages of the viewer, independent of its script."""

import json
import re
import zlib

import numpy as np


def samples_of(content, shape, like=None):
    """Decompress a plane sample by sample, from `like` or with the median predictor as JPEG-LS defines it."""
    count = shape[0] * shape[1]
    low, high = np.frombuffer(content[:count], np.uint8), np.frombuffer(content[count:], "<u2")
    folded = (low.astype(int) + 256 * high.astype(int)).reshape(shape)
    errors = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
    if like is not None:
        return like + errors
    out = np.zeros((shape[0] + 1, shape[1] + 1), int)
    for y in range(shape[0]):
        for x in range(shape[1]):
            left, above, corner = out[y + 1, x], out[y, x + 1], out[y, x]
            if corner >= max(left, above):
                guess = min(left, above)
            elif corner <= min(left, above):
                guess = max(left, above)
            else:
                guess = left + above - corner
            out[y + 1, x + 1] = guess + errors[y, x]
    return out[1:, 1:]


def integers_of(content):
    """Decompress integers: sums of differences modulo 2^32, whose bytes stand in planes."""
    planes = np.frombuffer(content, np.uint8).reshape(4, -1).astype(np.uint64)
    folded = sum(plane << np.uint64(8 * i) for i, plane in enumerate(planes)).tolist()
    values, value = [], 0
    for each in folded:
        value = (value + (-(each + 1) // 2 if each % 2 else each // 2) + 2**31) % 2**32 - 2**31
        values.append(value)
    return np.array(values)


class Page:
    """Data of a page, decompressed by this test."""

    def __init__(self, path):
        page = path.read_bytes()
        self.data = json.loads(re.search(rb'id="data"[^>]*>(.*?)</script>', page, re.S)[1])
        self.chunks = dict(re.findall(rb'id="c(\d+)">(.*?)</script>', page, re.S))
        self.pictures = self.data["pictures"]

    def chunk(self, number):
        text = self.chunks[b"%d" % number]
        return zlib.decompress(re.sub(b"=(.)", lambda found: bytes([(found[1][0] - 64) % 256]), text, flags=re.S))

    def plane(self, picture, layer, component):
        source = self.pictures[picture]["layers"][layer][component]
        like = self.plane(picture, source["like"], component) if "like" in source else None
        if "chunk" not in source:
            return like
        shape, shift = self.pictures[picture]["sizes"][component][::-1], source["shift"]
        return samples_of(self.chunk(source["chunk"]), shape, None if like is None else like >> shift) << shift

    def layers(self, picture=0):
        """Return the planes of each layer."""
        layers = self.pictures[picture]["layers"]
        return {name: [self.plane(picture, name, i) for i in range(len(layers[name]))] for name in layers}

    def text(self, picture=0):
        """Return modes, tools and values of CTUs."""
        return json.loads(self.chunk(self.pictures[picture]["detail"]["text"]))

    def array(self, name, picture=0):
        """Return an array of the coding of a picture."""
        source = self.pictures[picture]["detail"]["arrays"][name]
        return integers_of(self.chunk(source["chunk"])).reshape(source["shape"])

    def rows(self, picture=0):
        """Return the CUs, a row each."""
        return self.array("blocks", picture).T
