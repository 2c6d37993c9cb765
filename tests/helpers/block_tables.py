"""Small CU tables for tests, and their rows."""

import numpy as np

from codecnn.codec import COLUMNS, LUMA, BlockTable


def make_table(**columns) -> BlockTable:
    """Create a table; omitted columns are -1 (channel: luma)."""
    rows = len(next(iter(columns.values())))
    defaults = {name: np.full(rows, LUMA if name == "channel" else -1) for name in COLUMNS}
    return BlockTable(**{**defaults, **{name: np.array(values) for name, values in columns.items()}})


def as_rows(table: BlockTable, names: tuple[str, ...] = COLUMNS) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(table, name).tolist() for name in names), strict=True))


def random_partition(rng: np.random.Generator, width: int, height: int, poc: int) -> list[dict[str, int]]:
    """Split CTUs of 64 at random in four, two or three, and return CUs with random values."""

    def split(x, y, w, h):
        cuts = [kind for kind, fits in zip("qhvHV", (w > 4 < h, h > 4, w > 4, h > 8, w > 8), strict=True) if fits]
        if not cuts or rng.random() < 0.35 or x >= width or y >= height:
            return [(x, y, w, h)]
        parts = {
            "q": [(x + i * w // 2, y + j * h // 2, w // 2, h // 2) for j in (0, 1) for i in (0, 1)],
            "h": [(x, y, w, h // 2), (x, y + h // 2, w, h // 2)],
            "v": [(x, y, w // 2, h), (x + w // 2, y, w // 2, h)],
            "H": [(x, y, w, h // 4), (x, y + h // 4, w, h // 2), (x, y + 3 * h // 4, w, h // 4)],
            "V": [(x, y, w // 4, h), (x + w // 4, y, w // 2, h), (x + 3 * w // 4, y, w // 4, h)],
        }[rng.choice(cuts)]
        return [leaf for part in parts for leaf in split(*part)]

    leaves = [cu for y in range(0, height, 64) for x in range(0, width, 64) for cu in split(x, y, 64, 64)]
    return [
        {"poc": poc, "channel": LUMA, **dict(zip("xywh", cu, strict=True))}
        | {"depth": rng.integers(0, 8), "qp": rng.integers(-12, 64), "pred_mode": rng.integers(0, 4)}
        | {"intra_mode": rng.integers(-1, 67)}
        for cu in leaves
        if cu[0] < width and cu[1] < height
    ]


def as_table(cus: list[dict[str, int]]) -> BlockTable:
    return make_table(**{name: [cu[name] for cu in cus] for name in cus[0]})
