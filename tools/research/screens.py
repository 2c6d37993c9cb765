"""Draw clips of screen content, on which filters for video are trained beside natural clips.

    python tools/research/screens.py -o clips/screens

A fine-tuning on natural clips alone forgets screen content. The clips show games of few colours, scrolled text, and
windows that move over a desktop: 36 clips of 480x272, 17 pictures, each from its own seed, 8 bit 4:2:0 in FFV1.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.pictures.files import ffmpeg_path

Picture = npt.NDArray[np.uint8]
"""Red, green and blue samples, shape (HEIGHT, WIDTH, 3)."""

WIDTH, HEIGHT, PICTURES = 480, 272, 17
CLIPS = 36
WORDS = [
    "the",
    "coding",
    "tree",
    "unit",
    "is",
    "split",
    "into",
    "blocks",
    "of",
    "pictures",
    "and",
    "each",
    "mode",
    "has",
    "its",
    "cost",
    "while",
    "rate",
    "grows",
    "def",
    "return",
    "import",
    "for",
    "in",
    "range",
    "if",
    "else",
    "0x3f",
    "42",
    "17",
    "error:",
    "file",
    "not",
    "found",
    "$",
    "ls",
    "-la",
    "git",
    "commit",
    "open",
    "save",
    "edit",
    "view",
    "help",
    "total",
    "sum",
    "mean",
    "value",
]


def draw_game(rng: random.Random) -> list[Picture]:
    """Draw a scrolled map of tiles with few colours, and sprites that move over it."""
    scale, size = rng.choice([1, 2, 3, 4]), rng.choice([8, 16])
    palette = np.array([[rng.randrange(256) for _ in range(3)] for _ in range(rng.choice([6, 12, 24]))], np.uint8)

    def tile() -> npt.NDArray[np.int64]:
        half = np.array([[rng.randrange(rng.choice([2, 3, 5])) for _ in range(size // 2)] for _ in range(size)])
        if rng.random() < 0.3:
            half[:] = half[0, 0]
        return np.hstack([half, half[:, ::-1]])

    tiles = [(tile() + rng.randrange(len(palette))) % len(palette) for _ in range(10)]
    columns, rows = WIDTH // (scale * size) + 8, HEIGHT // (scale * size) + 4
    board = np.block([[tiles[min(int(abs(rng.gauss(0, 3))), 9)] for _ in range(columns)] for _ in range(rows)])
    sprites = [
        (tile(), rng.randrange(WIDTH // scale), rng.randrange(HEIGHT // scale), rng.randint(-3, 3), rng.randint(-2, 2))
        for _ in range(rng.randint(3, 9))
    ]
    right, down = rng.randint(0, 2), rng.choice([0, 0, 0, 1])
    pictures = []
    for number in range(PICTURES):
        top, left = number * down, number * right
        shown = board[top : top + HEIGHT // scale + 1, left : left + WIDTH // scale + 1].copy()
        for k, (sprite, x, y, dx, dy) in enumerate(sprites):
            column, row = x + number * dx, y + number * dy
            if 0 <= column < shown.shape[1] - size and 0 <= row < shown.shape[0] - size:
                window = shown[row : row + size, column : column + size]
                window[:] = np.where(sprite > 0, (sprite + k) % len(palette), window)
        pictures.append(np.kron(palette[shown], np.ones((scale, scale, 1), np.uint8))[:HEIGHT, :WIDTH])
    return pictures


def draw_text(rng: random.Random) -> list[Picture]:
    """Draw lines of words, dark on light or light on dark, that stand still, are scrolled or appear."""
    dark = rng.random() < 0.5
    background = (rng.randrange(0, 40) if dark else rng.randrange(220, 256),) * 3
    size = rng.choice([9, 11, 13, 16, 22])
    font = ImageFont.load_default(size)
    page = Image.new("RGB", (WIDTH + 200, HEIGHT + 200), background)
    pen = ImageDraw.Draw(page)
    y = 2
    while y < HEIGHT + 190:
        x = 4 + rng.choice([0, 0, 20, 40])
        while x < WIDTH + 190 and rng.random() > 0.08:
            word = rng.choice(WORDS)
            colour: tuple[int, ...] = (230,) * 3 if dark else (20,) * 3
            if rng.random() < 0.3:
                colour = tuple(rng.randrange(120, 256) if dark else rng.randrange(140) for _ in range(3))
            pen.text((x, y), word, fill=colour, font=font)
            x += int(pen.textlength(word + " ", font=font))
        y += int(size * 1.4)
    samples = np.array(page)
    mode, speed = rng.choice(["scroll", "still", "type"]), rng.choice([1, 2, 3, 5, int(size * 1.4)])
    pictures = []
    for number in range(PICTURES):
        top = number * speed % 180 if mode == "scroll" else 0
        shown = samples[top : top + HEIGHT, :WIDTH].copy()
        if mode == "type":
            shown[HEIGHT // 2 : HEIGHT // 2 + 20, 30 + number * 15 :] = background
        pictures.append(shown)
    return pictures


def draw_desktop(rng: random.Random) -> list[Picture]:
    """Draw shapes, labels and lines on a flat or graded ground, and a window that moves over them."""

    def colour() -> tuple[int, ...]:
        return tuple(rng.randrange(256) for _ in range(3))

    desktop = Image.new("RGB", (WIDTH, HEIGHT), colour())
    font = ImageFont.load_default(rng.choice([10, 12, 14]))
    if rng.random() < 0.5:
        grade = 1 - np.linspace(0, 1, HEIGHT)[:, None, None] * 0.6
        desktop = Image.fromarray((np.array(desktop) * grade).astype(np.uint8))
    pen: Any = ImageDraw.Draw(desktop)
    for _ in range(rng.randint(4, 14)):
        x, y = rng.randrange(WIDTH - 60), rng.randrange(HEIGHT - 40)
        box = [x, y, x + rng.randrange(40, 220), y + rng.randrange(20, 140)]
        fill = colour()
        (pen.rectangle if rng.random() < 0.6 else pen.ellipse)(box, fill=fill, outline=colour())
        for line in range(3):
            label = " ".join(rng.choices(WORDS, k=3))
            pen.text((x + 4, y + 4 + line * 14), label, fill=tuple(255 - value for value in fill), font=font)
    for _ in range(6):
        ends = [rng.randrange(WIDTH), rng.randrange(HEIGHT), rng.randrange(WIDTH), rng.randrange(HEIGHT)]
        pen.line(ends, fill=colour(), width=rng.choice([1, 1, 2]))
    samples = np.array(desktop)
    window = samples[40:160, 60:260].copy()
    right, down = rng.randint(-6, 8), rng.randint(-3, 4)
    pictures = []
    for number in range(PICTURES):
        shown = samples.copy()
        x, y = 100 + number * right, 60 + number * down
        if 0 <= x <= WIDTH - 200 and 0 <= y <= HEIGHT - 120:
            shown[y : y + 120, x : x + 200] = window
        pictures.append(shown)
    return pictures


KINDS: dict[str, Callable[[random.Random], list[Picture]]] = {
    "game": draw_game,
    "text": draw_text,
    "desktop": draw_desktop,
}


def main() -> None:
    """Write the clips into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the clips")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{WIDTH}x{HEIGHT}", "-r", "25", "-i", "-"]
    for number in range(CLIPS):
        kind = list(KINDS)[number % len(KINDS)]
        samples = b"".join(np.ascontiguousarray(p).tobytes() for p in KINDS[kind](random.Random(1000 + number)))
        path = folder / f"{kind}_{number}_{WIDTH}x{HEIGHT}.mkv"
        coding = ["-vf", "format=yuv420p", "-c:v", "ffv1", path]
        subprocess.run([ffmpeg_path(), "-v", "error", "-y", *raw, *coding], input=samples, check=True)


if __name__ == "__main__":
    main()
