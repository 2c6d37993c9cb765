"""Files of still pictures of many kinds, each with the samples that are right or the reason why it is refused."""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from imagecodecs import jpegls_encode
from PIL import Image, ImageCms, PngImagePlugin
from tifffile import TiffFile, imwrite

HEIGHT, WIDTH = 24, 40
_Y, _X = np.mgrid[:HEIGHT, :WIDTH]
RGB = np.stack((40 + 4 * _X, 200 - 5 * _Y, 90 + 2 * _X - 3 * _Y), axis=2).astype(np.uint8)
"""A picture of no symmetry, so that channels, rotations and inversions are told apart."""
GREY = RGB[:, :, 0]
DEEP = RGB.astype(np.uint16) * 257 - 3
BITS = ((GREY > 120) * 255).astype(np.uint8)
CMYK = np.asarray(Image.fromarray(RGB).convert("CMYK"))
YCBCR = np.asarray(Image.fromarray(RGB).convert("YCbCr"))
ALPHA = np.where(_X < 9, 60, 255).astype(np.uint8)
INDICES = (_X // 5 + _Y // 8).astype(np.uint8) % 16
PALETTE = np.random.default_rng(2).integers(0, 256, (16, 3)).astype(np.uint8)
ADAPTIVE = np.asarray(Image.fromarray(RGB).convert("P").convert("RGB"))
PAGES = [np.full((HEIGHT, WIDTH), level, np.uint8) for level in (20, 120, 220)]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: Name of the file.
        write: Function that writes it.
        samples: The right samples of each picture; None if it is refused.
        refused: Text of the message, if it is refused.
        warning: Text of the warning, if there is one.
        tolerance: Largest error of lossy samples.
    """

    name: str
    write: Callable[[Path], object]
    samples: Sequence[np.ndarray] | None = None
    refused: str = ""
    warning: str = ""
    tolerance: int = 0


def tiff(samples: np.ndarray | Sequence[np.ndarray], **options: Any) -> Callable[[Path], None]:
    """Return a function that writes a TIFF file by tifffile."""
    return lambda path: imwrite(path, np.asarray(samples), **options)


def pillow_tiff(samples: np.ndarray, mode: str | None = None, **options: Any) -> Callable[[Path], None]:
    """Return a function that writes a TIFF file by Pillow and libtiff, after a conversion to `mode`."""

    def write(path: Path) -> None:
        image = Image.fromarray(samples)
        (image if mode is None else image.convert(mode)).save(path, **options)

    return write


def pages(*parts: tuple[np.ndarray, dict[str, Any]]) -> Callable[[Path], None]:
    """Return a function that writes a TIFF file page by page, each with its own options."""

    def write(path: Path) -> None:
        path.unlink(missing_ok=True)
        for samples, options in parts:
            imwrite(path, samples, append=path.exists(), metadata=None, **options)

    return write


def tagged(write: Callable[[Path], object], **values: int) -> Callable[[Path], None]:
    """Return a function that changes tags of the first page after `write` has written the file."""

    def rewrite(path: Path) -> None:
        write(path)
        with TiffFile(path, mode="r+") as file:
            for name, value in values.items():
                file.pages[0].tags[name].overwrite(value)

    return rewrite


def colour_map(palette: np.ndarray, scale: int, size: int = 256) -> np.ndarray:
    """Return a TIFF colour map, shape (3, size)."""
    full = np.zeros((size, 3), np.uint16)
    full[: len(palette)] = palette.astype(np.uint16) * scale
    return full.T


def turned(samples: np.ndarray, orientation: int) -> np.ndarray:
    """Return the samples to store so that they are `samples` after the rotation by the tag.

    The definition is that of TIFF 6.0: the visual position of row 0 and column 0.
    """
    stored = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: np.swapaxes(a, 0, 1),
        6: lambda a: np.rot90(a),
        7: lambda a: np.swapaxes(a[::-1, ::-1], 0, 1),
        8: lambda a: np.rot90(a, -1),
    }
    return np.ascontiguousarray(stored[orientation](samples))


def exif(orientation: int) -> bytes:
    """Return Exif data with an orientation."""
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def save(samples: np.ndarray | Sequence[np.ndarray], mode: str | None = None, **options: Any) -> Callable[[Path], None]:
    """Return a function that writes a file by Pillow; several pictures become an animation."""

    def write(path: Path) -> None:
        arrays = [samples] if isinstance(samples, np.ndarray) else samples
        images = [Image.fromarray(array) for array in arrays]
        images = images if mode is None else [image.convert(mode) for image in images]
        more = {"save_all": True, "append_images": images[1:]} if len(images) > 1 else {}
        images[0].save(path, **more, **options)

    return write


def chunk(kind: bytes, body: bytes, *, damage: bool = False) -> bytes:
    """Return a PNG chunk, with a wrong checksum if `damage`."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ damage)


def png(
    samples: np.ndarray, colour_type: int, *extra: bytes, palette: bytes = b"", bits: int | None = None
) -> Callable[[Path], None]:
    """Return a function that writes a PNG without a library, with chunks between header and samples."""

    def write(path: Path) -> None:
        height, width = samples.shape[:2]
        depth = bits or 8 * samples.dtype.itemsize
        if depth < 8:
            shifted = samples[:, :, None] >> np.arange(depth)[::-1] & 1
            rows = [b"\0" + row.tobytes() for row in np.packbits(shifted.reshape(height, -1), axis=1)]
        else:
            rows = [b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for row in samples]
        header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
        parts = [chunk(b"IHDR", header), *([chunk(b"PLTE", palette)] if palette else []), *extra]
        parts += [chunk(b"IDAT", zlib.compress(b"".join(rows))), chunk(b"IEND", b"")]
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))

    return write


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row of each pass of an interlaced PNG, and its steps across and down (PNG, clause 8.2)."""


def adam7(samples: np.ndarray, colour_type: int, *extra: bytes) -> Callable[[Path], None]:
    """Return a function that writes an interlaced PNG of 8 or 16 bits without a library."""

    def write(path: Path) -> None:
        height, width = samples.shape[:2]
        stored = samples.astype(samples.dtype.newbyteorder(">"))
        rows = [b"\0" + row.tobytes() for x, y, dx, dy in ADAM7 for row in stored[y::dy, x::dx]]
        header = struct.pack(">IIBBBBB", width, height, 8 * samples.dtype.itemsize, colour_type, 0, 0, 1)
        parts = [chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(b"".join(rows))), chunk(b"IEND", b"")]
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))

    return write


def several_jpegs(path: Path) -> None:
    """Write two JPEG pictures one after another, as Motion JPEG does, the first of them progressive."""
    save(RGB, quality=95, progressive=True)(path)
    first = path.read_bytes()
    save(RGB[::-1], quality=95)(path)
    path.write_bytes(first + path.read_bytes())


def followed(write: Callable[[Path], object], data: bytes) -> Callable[[Path], None]:
    """Return a function that appends other data to the file that `write` writes."""

    def append(path: Path) -> None:
        write(path)
        path.write_bytes(path.read_bytes() + data)

    return append


def wide_profile(primaries: str) -> bytes:
    """Return an ICC profile of sRGB, or of sRGB with red and green exchanged, which has other colours."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    if primaries == "exchanged":
        data = data.replace(b"rXYZ", b"tmpT").replace(b"gXYZ", b"rXYZ").replace(b"tmpT", b"gXYZ")
    return bytes(data)


def raw_text(text: bytes) -> bytes:
    """Return the compressed text of a zTXt chunk with the key that ImageMagick uses for Exif data."""
    return b"Raw profile type exif\0\0" + zlib.compress(text)


def inverted(samples: np.ndarray, bits: int) -> np.ndarray:
    return (1 << bits) - 1 - samples


def spread(samples: np.ndarray, bits: int) -> np.ndarray:
    """Return samples of `bits` bits in the whole range of 8 or 16 bits."""
    peak, dtype = (255, np.uint8) if bits <= 8 else (65535, np.uint16)
    return np.floor(samples / ((1 << bits) - 1) * peak + 0.5).astype(dtype)


def few_bits(bits: int) -> np.ndarray:
    """Return grey samples of `bits` bits."""
    levels = GREY.astype(np.uint32) * ((1 << bits) - 1) // 255
    return levels.astype(np.uint8 if bits <= 8 else np.uint16)


def ycbcr_tiff(path: Path) -> None:
    """Write an uncompressed YCbCr TIFF without subsampling, which tifffile does not write."""
    tagged(tiff(YCBCR, photometric="rgb", metadata=None), PhotometricInterpretation=6)(path)


def ycbcr_alpha_tiff(path: Path) -> None:
    """Write a TIFF of JPEG-compressed YCbCr with alpha, of which tifffile does not convert the colours."""
    write = pillow_tiff(np.dstack((RGB, ALPHA)), compression="jpeg")
    tagged(write, PhotometricInterpretation=6)(path)


def palette_of_4_bits(path: Path) -> None:
    """Write a TIFF of 4-bit indices."""
    colours = colour_map(PALETTE, 257, 16).ravel().tolist()
    options = {"photometric": "minisblack", "bitspersample": 4, "extratags": [(320, 3, 48, colours, True)]}
    tagged(tiff(INDICES, **options), PhotometricInterpretation=3)(path)


def old_photometric(value: int) -> Callable[[Path], None]:
    """Return a function that writes three channels with another photometric interpretation."""
    return tagged(tiff(RGB, photometric="rgb", metadata=None), PhotometricInterpretation=value)


def pillow_lab(path: Path) -> None:
    """Write a Lab TIFF by Pillow."""
    to_lab = ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB")
    ImageCms.applyTransform(Image.fromarray(RGB), to_lab).save(path)


def imagej_stack(path: Path) -> None:
    """Write an ImageJ stack whose file has one page, as ImageJ does for large stacks."""
    imwrite(path, np.asarray(PAGES), imagej=True)
    data = bytearray(path.read_bytes())
    with TiffFile(path) as file:
        first = file.pages[0].offset
        count = len(file.pages[0].tags)
    data[first + 2 + 12 * count : first + 6 + 12 * count] = bytes(4)  # the offset of the next page
    path.write_bytes(bytes(data))


def without_photometric(path: Path) -> None:
    """Write a TIFF whose tag 262 has become an unknown tag."""
    imwrite(path, GREY, metadata=None, photometric="minisblack")
    path.write_bytes(path.read_bytes().replace(struct.pack("<HH", 262, 3), struct.pack("<HH", 261, 3), 1))


def mpo(kind: str) -> Callable[[Path], None]:
    """Return a function that writes a JPEG with a second picture of a kind of the Multi-Picture Format."""

    def write(path: Path) -> None:
        save([RGB, RGB[::-1]], format="MPO", quality=95)(path)
        values = {"gain map": 0, "thumbnail": 0x010001, "stereo": 0x020002}
        data = path.read_bytes()
        # The first entry of 16 bytes is that of the primary picture, 0x030000; the second follows it.
        at = data.rindex(struct.pack("<I", 0x030000), 0, 200)
        path.write_bytes(data[: at + 16] + struct.pack("<I", values[kind]) + data[at + 20 :])

    return write


def adobe_rgb(path: Path) -> None:
    """Write a JPEG whose Exif data state Adobe RGB, as cameras do."""
    # Three directories of one entry each: that of the picture, Exif, and interoperability.
    entries = [(0x8769, 4, 1, 26), (0xA005, 4, 1, 44), (1, 2, 4, int.from_bytes(b"R03\0", "little"))]
    directories = b"".join(struct.pack("<HHHIII", 1, *entry, 0) for entry in entries)
    data = b"Exif\0\0II*\0" + struct.pack("<I", 8) + directories
    Image.fromarray(RGB).save(path, quality=95, exif=data)


def cut(write: Callable[[Path], object], keep: float) -> Callable[[Path], None]:
    """Return a function that keeps a part of the file that `write` has written."""

    def truncate(path: Path) -> None:
        write(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])

    return truncate


_UNASSOCIATED = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
_TRANSPARENT = "transparent samples"
_INDEXED = {"photometric": "palette", "colormap": colour_map(PALETTE, 257)}
_LOSSLESS = ("lzw", "zlib", "packbits", "zstd", "lzma", "webp", "jpeg2000")
_TEXT = PngImagePlugin.PngInfo()
_TEXT.add_text("Comment", "x" * 40)

TIFF_KINDS = [
    Kind("rgb.tif", tiff(RGB, photometric="rgb"), [RGB]),
    Kind("tiled.tif", tiff(RGB, photometric="rgb", tile=(16, 16)), [RGB]),
    Kind("big_endian.tif", tiff(DEEP, photometric="rgb", byteorder=">"), [DEEP]),
    Kind("bigtiff.tif", tiff(DEEP, photometric="rgb", bigtiff=True), [DEEP]),
    Kind("planar.tif", tiff(np.moveaxis(RGB, 2, 0), photometric="rgb", planarconfig="separate"), [RGB]),
    Kind(
        "planar_tiles.tif",
        tiff(np.moveaxis(RGB, 2, 0), photometric="rgb", planarconfig="separate", tile=(16, 16)),
        [RGB],
    ),
    Kind("planar16.tif", tiff(np.moveaxis(DEEP, 2, 0), photometric="rgb", planarconfig="separate"), [DEEP]),
    Kind(
        "planar_alpha.tif",
        tiff(np.moveaxis(np.dstack((RGB, ALPHA)), 2, 0), planarconfig="separate", **_UNASSOCIATED),
        [RGB],
        warning=_TRANSPARENT,
    ),
    Kind("grey16.tif", tiff(DEEP[:, :, 0], photometric="minisblack"), [DEEP[:, :, 0]]),
    Kind("bits.tif", tiff(GREY > 120, photometric="minisblack"), [(GREY > 120) * np.uint8(255)]),
    *(
        Kind(
            f"grey{bits}bit.tif",
            tiff(few_bits(bits), photometric="minisblack", bitspersample=bits),
            [spread(few_bits(bits), bits)],
        )
        for bits in (2, 4, 6, 10, 12, 14)
    ),
    Kind("rgb12bit.tif", tiff(DEEP >> 4, photometric="rgb", bitspersample=12), [spread(DEEP >> 4, 12)]),
    Kind("white_is_zero.tif", tiff(255 - GREY, photometric="miniswhite"), [GREY]),
    Kind("white_is_zero_16.tif", tiff(65535 - DEEP[:, :, 0], photometric="miniswhite"), [DEEP[:, :, 0]]),
    Kind(
        "white_is_zero_bits.tif",
        tiff(GREY <= 120, photometric="miniswhite"),
        [(GREY > 120) * np.uint8(255)],
    ),
    Kind(
        "white_is_zero_4.tif",
        tiff(inverted(few_bits(4), 4), photometric="miniswhite", bitspersample=4),
        [spread(few_bits(4), 4)],
    ),
    Kind("palette.tif", tiff(INDICES, **_INDEXED), [PALETTE[INDICES]]),
    Kind("palette_lzw.tif", tiff(INDICES, compression="lzw", **_INDEXED), [PALETTE[INDICES]]),
    Kind(
        "palette_shifted.tif",
        tiff(INDICES, photometric="palette", colormap=colour_map(PALETTE, 256)),
        [PALETTE[INDICES]],
    ),
    Kind(
        "palette_8bit.tif",
        tiff(INDICES, photometric="palette", colormap=colour_map(PALETTE, 1)),
        [PALETTE[INDICES]],
    ),
    Kind("palette_4.tif", palette_of_4_bits, [PALETTE[INDICES]]),
    Kind(
        "palette_16bit.tif",
        tiff(INDICES, photometric="palette", colormap=colour_map(PALETTE, 251)),
        [PALETTE[INDICES].astype(np.uint16) * 251],
    ),
    Kind(
        "palette_of_65536.tif",
        tiff(INDICES.astype(np.uint16), photometric="palette", colormap=colour_map(PALETTE, 257, 65536)),
        [PALETTE[INDICES]],
    ),
    Kind("palette_pillow.tif", pillow_tiff(RGB, "P"), [ADAPTIVE]),
    *(Kind(f"{name}.tif", tiff(RGB, photometric="rgb", compression=name), [RGB]) for name in _LOSSLESS),
    Kind("lzw16.tif", tiff(DEEP, photometric="rgb", compression="lzw", predictor=True), [DEEP]),
    Kind("deflate_tiles.tif", tiff(DEEP, photometric="rgb", compression="zlib", predictor=True, tile=(16, 16)), [DEEP]),
    Kind("libtiff_lzw.tif", pillow_tiff(RGB, compression="tiff_lzw"), [RGB]),
    Kind("libtiff_deflate.tif", pillow_tiff(RGB, compression="tiff_adobe_deflate"), [RGB]),
    Kind("libtiff_old_deflate.tif", pillow_tiff(RGB, compression="tiff_deflate"), [RGB]),
    Kind("libtiff_packbits.tif", pillow_tiff(GREY, compression="packbits"), [GREY]),
    Kind("libtiff_zstd.tif", pillow_tiff(RGB, compression="zstd"), [RGB]),
    Kind("jpeg.tif", pillow_tiff(RGB, compression="jpeg", quality=95), [RGB], tolerance=12),
    Kind("jpeg_rgb.tif", tiff(RGB, photometric="rgb", compression="jpeg"), [RGB], tolerance=12),
    Kind("jpeg_grey.tif", tiff(GREY, photometric="minisblack", compression="jpeg"), [GREY], tolerance=12),
    Kind("jpeg_tiles.tif", tiff(YCBCR, photometric="ycbcr", compression="jpeg", tile=(16, 16)), [RGB], tolerance=30),
    *(
        Kind(
            f"jpeg_{name}.tif",
            tiff(YCBCR, photometric="ycbcr", compression="jpeg", subsampling=factors),
            [RGB],
            tolerance=12,
        )
        for name, factors in {"444": (1, 1), "422": (2, 1), "420": (2, 2), "411": (4, 1)}.items()
    ),
    Kind(
        "jpeg_rgba.tif",
        pillow_tiff(np.dstack((RGB, ALPHA)), compression="jpeg", quality=95),
        [RGB],
        warning=_TRANSPARENT,
        tolerance=12,
    ),
    Kind("jpeg_alpha.tif", ycbcr_alpha_tiff, refused="YCBCR"),
    Kind("fax.tif", pillow_tiff(BITS, "1", compression="group4"), [BITS]),
    Kind("fax3.tif", pillow_tiff(BITS, "1", compression="group3"), [BITS]),
    Kind("cmyk.tif", pillow_tiff(RGB, "CMYK"), refused="CMYK"),
    Kind("cmyk16.tif", tiff(CMYK.astype(np.uint16) * 257, photometric="separated"), refused="CMYK"),
    Kind(
        "cmyk_alpha.tif",
        tiff(np.dstack((CMYK, ALPHA)), photometric="separated", extrasamples=["unassalpha"]),
        refused="CMYK",
    ),
    Kind(
        "cmyk_planar.tif",
        tiff(np.moveaxis(CMYK, 2, 0), photometric="separated", planarconfig="separate"),
        refused="CMYK",
    ),
    Kind("cmyk_jpeg.tif", tiff(CMYK, photometric="separated", compression="jpeg"), refused="CMYK"),
    Kind("cmyk_lzw.tif", pillow_tiff(RGB, "CMYK", compression="tiff_lzw"), refused="CMYK"),
    Kind("lab.tif", pillow_lab, refused="Lab"),
    Kind("icc_lab.tif", old_photometric(9), refused="Lab"),
    Kind("itu_lab.tif", old_photometric(10), refused="Lab"),
    Kind("ycbcr.tif", ycbcr_tiff, refused="YCBCR"),
    Kind("raw_camera.tif", old_photometric(32803), refused="raw camera"),
    Kind("logluv.tif", old_photometric(32845), refused="photometric interpretation"),
    Kind("no_photometric.tif", without_photometric, refused="tag 262"),
    Kind("float.tif", tiff(GREY / np.float32(255), photometric="minisblack"), refused="float32"),
    Kind("float64.tif", tiff(RGB / 255.0, photometric="rgb"), refused="float64"),
    Kind("signed32.tif", tiff(GREY.astype(np.int32), photometric="minisblack"), refused="int32"),
    Kind("lab16.tif", tagged(tiff(DEEP, photometric="rgb", metadata=None), PhotometricInterpretation=8), refused="Lab"),
    Kind("mask.tif", old_photometric(4), refused="transparency mask samples"),
    Kind("float16.tif", tiff((RGB / 255).astype(np.float16), photometric="rgb"), refused="float16"),
    Kind("signed.tif", tiff(GREY.astype(np.int16), photometric="minisblack"), refused="int16"),
    Kind("signed8.tif", tiff((GREY >> 1).astype(np.int8), photometric="minisblack"), refused="int8"),
    Kind("uint32.tif", tiff(GREY.astype(np.uint32), photometric="minisblack"), refused="32 bits"),
    Kind("complex.tif", tiff(GREY.astype(np.complex64), photometric="minisblack"), refused="complex64"),
    Kind("alpha.tif", tiff(np.dstack((RGB, ALPHA)), **_UNASSOCIATED), [RGB], warning=_TRANSPARENT),
    Kind(
        "premultiplied_opaque.tif",
        tiff(np.dstack((RGB, GREY * 0 + 255)), photometric="rgb", extrasamples=["assocalpha"]),
        [RGB],
    ),
    Kind("opaque.tif", tiff(np.dstack((RGB, GREY * 0 + 255)), **_UNASSOCIATED), [RGB]),
    Kind(
        "grey_alpha.tif",
        tiff(np.dstack((GREY, ALPHA)), photometric="minisblack", extrasamples=["unassalpha"], planarconfig="contig"),
        [GREY],
        warning=_TRANSPARENT,
    ),
    Kind(
        "premultiplied.tif",
        tiff(np.dstack((RGB, ALPHA)), photometric="rgb", extrasamples=["assocalpha"]),
        refused="multiplied by alpha",
    ),
    Kind(
        "infrared.tif",
        tiff(np.dstack((RGB, GREY)), photometric="rgb", extrasamples=["unspecified"]),
        [RGB],
        warning="channels|transparent",
    ),
    Kind(
        "bands.tif",
        tiff(np.dstack((RGB, GREY, GREY)), photometric="minisblack", planarconfig="contig", metadata=None),
        refused="5 channels",
    ),
    Kind("three_bands.tif", old_photometric(1), refused="3 channels"),
    Kind("pages3.tif", tiff(PAGES, photometric="minisblack"), PAGES),
    Kind("pages4.tif", tiff([*PAGES, GREY], photometric="minisblack"), [*PAGES, GREY]),
    Kind("pages2.tif", tiff(PAGES[:2], photometric="minisblack"), PAGES[:2]),
    Kind("pages_rgb.tif", tiff([RGB, RGB[::-1]], photometric="rgb"), [RGB, RGB[::-1]]),
    Kind("pages_appended.tif", pages(*((page, {"photometric": "minisblack"}) for page in PAGES)), PAGES),
    Kind("pages_pillow.tif", save(PAGES), PAGES),
    Kind(
        "page_and_thumbnail.tif",
        pages((RGB, {"photometric": "rgb"}), (RGB[::4, ::4], {"photometric": "rgb", "subfiletype": 1})),
        [RGB],
    ),
    Kind("only_thumbnail.tif", pages((RGB, {"photometric": "rgb", "subfiletype": 1})), refused="previews"),
    Kind(
        "pages_of_sizes.tif",
        pages((RGB, {"photometric": "rgb"}), (RGB[::2, ::2], {"photometric": "rgb"})),
        refused="different sizes",
    ),
    Kind("imagej.tif", lambda path: imwrite(path, np.asarray(PAGES), imagej=True), PAGES),
    Kind("imagej_one_page.tif", imagej_stack, refused="stack"),
    *(
        Kind(
            f"orientation{value}.tif",
            tiff(turned(RGB, value), photometric="rgb", extratags=[(274, 3, 1, value, True)]),
            [RGB],
        )
        for value in range(1, 9)
    ),
    Kind("dark16.tif", tiff(DEEP >> 4, photometric="rgb"), [DEEP >> 4], warning="nearly black"),
    Kind("profile.tif", pillow_tiff(RGB, icc_profile=wide_profile("exchanged")), [RGB], warning="colour profile"),
    Kind("srgb_profile.tif", pillow_tiff(RGB, icc_profile=wide_profile("sRGB")), [RGB]),
    Kind("cut.tif", cut(tiff(RGB, photometric="rgb", metadata=None), 0.6), refused="cannot be read"),
]

OTHER_KINDS = [
    Kind("rgb.png", save(RGB), [RGB]),
    Kind("grey.png", png(GREY, 0), [GREY]),
    Kind("interlaced.png", adam7(RGB, 2), [RGB]),
    Kind("interlaced_grey.png", adam7(GREY, 0), [GREY]),
    Kind("interlaced_deep.png", adam7(DEEP, 2), [DEEP]),
    Kind("interlaced_palette.png", adam7(INDICES, 3, chunk(b"PLTE", PALETTE.tobytes())), [PALETTE[INDICES]]),
    Kind(
        "interlaced_deep_alpha.png",
        adam7(np.dstack((DEEP, ALPHA.astype(np.uint16) * 257)), 6),
        [DEEP],
        warning=_TRANSPARENT,
    ),
    Kind("deep.png", png(DEEP, 2), [DEEP]),
    Kind("deep_grey.png", png(DEEP[:, :, 0], 0), [DEEP[:, :, 0]]),
    Kind(
        "deep_alpha.png",
        png(np.dstack((DEEP, ALPHA.astype(np.uint16) * 257)), 6),
        [DEEP],
        warning=_TRANSPARENT,
    ),
    Kind("deep_opaque.png", png(np.dstack((DEEP, DEEP[:, :, 0] * 0 + 65535)), 6), [DEEP]),
    Kind(
        "deep_grey_alpha.png", png(np.dstack((DEEP[:, :, 0], DEEP[:, :, 1])), 4), [DEEP[:, :, 0]], warning=_TRANSPARENT
    ),
    Kind("deep_dark.png", png(DEEP >> 6, 2), [DEEP >> 6], warning="nearly black"),
    Kind(
        "deep_key.png",
        png(DEEP, 2, chunk(b"tRNS", DEEP[3, 5].astype(">u2").tobytes())),
        [DEEP],
        warning=_TRANSPARENT,
    ),
    *(Kind(f"grey{bits}.png", png(few_bits(bits), 0, bits=bits), [spread(few_bits(bits), bits)]) for bits in (1, 2, 4)),
    Kind("grey_key.png", png(GREY, 0, chunk(b"tRNS", struct.pack(">H", GREY[2, 7]))), [GREY], warning=_TRANSPARENT),
    Kind("rgb_key.png", png(RGB, 2, chunk(b"tRNS", RGB[3, 5].astype(">u2").tobytes())), [RGB], warning=_TRANSPARENT),
    Kind("palette.png", png(INDICES, 3, palette=PALETTE.tobytes()), [PALETTE[INDICES]]),
    Kind("palette4.png", png(INDICES, 3, palette=PALETTE.tobytes(), bits=4), [PALETTE[INDICES]]),
    Kind(
        "palette_alpha.png",
        png(INDICES, 3, chunk(b"tRNS", bytes([0, 128])), palette=PALETTE.tobytes()),
        [PALETTE[INDICES]],
        warning=_TRANSPARENT,
    ),
    Kind("palette_opaque.png", png(INDICES, 3, chunk(b"tRNS", b"\xff"), palette=PALETTE.tobytes()), [PALETTE[INDICES]]),
    Kind("rgba.png", save(np.dstack((RGB, ALPHA))), [RGB], warning=_TRANSPARENT),
    Kind("opaque.png", save(np.dstack((RGB, GREY * 0 + 255))), [RGB]),
    Kind("text.png", save(RGB, pnginfo=_TEXT), [RGB]),
    Kind("text_checksum.png", png(RGB, 2, chunk(b"tEXt", b"Comment\0text", damage=True)), [RGB]),
    Kind("text_raw_exif.png", png(RGB, 2, chunk(b"zTXt", raw_text(b"\nexif\n  40\nzz" * 3))), [RGB]),
    Kind("text_not_compressed.png", png(RGB, 2, chunk(b"zTXt", b"Comment\0\0no zlib stream")), [RGB]),
    Kind("text_method.png", png(RGB, 2, chunk(b"zTXt", b"Comment\0\7abc")), [RGB]),
    Kind("text_international.png", png(RGB, 2, chunk(b"iTXt", b"Comment\0\1\0\0\0\xff\xfe")), [RGB]),
    Kind("text_bomb.png", png(RGB, 2, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(80_000_000)))), [RGB]),
    Kind("exif_damaged.png", png(RGB, 2, chunk(b"eXIf", b"MM\0*\xff\xff\xff\xff")), [RGB]),
    Kind("profile_damaged.png", png(RGB, 2, chunk(b"iCCP", b"x\0\0nothing")), [RGB]),
    Kind("physical_damaged.png", png(RGB, 2, chunk(b"pHYs", b"\1")), [RGB]),
    Kind("deep_text_checksum.png", png(DEEP, 2, chunk(b"tEXt", b"Comment\0text", damage=True)), [DEEP]),
    Kind("critical.png", png(RGB, 2, chunk(b"CgBI", bytes(4))), refused="CgBI"),
    Kind("samples_damaged.png", cut(save(RGB), 0.6), refused="cannot be read"),
    Kind("deep_samples_damaged.png", cut(png(DEEP, 2), 0.6), refused="cannot be read"),
    Kind("gamma.png", png(RGB, 2, chunk(b"gAMA", struct.pack(">I", 100_000))), [RGB], warning="gamma of 1,"),
    Kind("gamma_srgb.png", png(RGB, 2, chunk(b"gAMA", struct.pack(">I", 45455))), [RGB]),
    Kind(
        "primaries.png",
        png(RGB, 2, chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000))),
        [RGB],
        warning="primaries",
    ),
    Kind("hdr.png", png(DEEP, 2, chunk(b"cICP", bytes([9, 16, 0, 1]))), [DEEP], warning=r"9/16/0/1 \(cICP\)"),
    Kind("sdr.png", png(RGB, 2, chunk(b"cICP", bytes([1, 13, 0, 1]))), [RGB]),
    Kind("profile.png", save(RGB, icc_profile=wide_profile("exchanged")), [RGB], warning="colour profile"),
    Kind("srgb_profile.png", save(RGB, icc_profile=wide_profile("sRGB")), [RGB]),
    Kind("animated.png", save([RGB, RGB[::-1], RGB]), [RGB, RGB[::-1], RGB]),
    Kind(
        "animated_behind_a_picture.png",
        save([GREY, PAGES[1], PAGES[2]], default_image=True),
        PAGES[1:],
    ),
    Kind(
        "animated_disposal.png",
        save([RGB, RGB[::-1], RGB], disposal=2, blend=0),
        [RGB, RGB[::-1], RGB],
    ),
    Kind("animated.webp", save([RGB, RGB[::-1]], lossless=True), [RGB, RGB[::-1]]),
    Kind("animated.gif", save(PAGES), [np.repeat(page[:, :, None], 3, axis=2) for page in PAGES]),
    Kind("one.gif", save(GREY), [np.repeat(GREY[:, :, None], 3, axis=2)]),
    Kind("lossless.webp", save(RGB, lossless=True), [RGB]),
    Kind("lossy.webp", save(RGB, quality=95), [RGB], tolerance=12),
    Kind("alpha.webp", save(np.dstack((RGB, ALPHA)), lossless=True, exact=True), [RGB], warning=_TRANSPARENT),
    Kind("rgb.jpg", save(RGB, quality=95), [RGB], tolerance=12),
    Kind("grey.jpg", save(GREY, quality=95), [GREY], tolerance=12),
    Kind("progressive.jpg", save(RGB, quality=95, progressive=True), [RGB], tolerance=12),
    Kind("cmyk.jpg", save(RGB, "CMYK"), refused="CMYK"),
    Kind("gain_map.jpg", mpo("gain map"), [RGB], tolerance=12, warning="2 JPEG pictures"),
    Kind("thumbnail.jpg", mpo("thumbnail"), [RGB], tolerance=12),
    Kind("stereo.jpg", mpo("stereo"), refused="2 JPEG pictures of one scene"),
    Kind("adobe_rgb.jpg", adobe_rgb, [RGB], tolerance=12, warning="Adobe RGB"),
    Kind(
        "profile.jpg",
        save(RGB, quality=95, icc_profile=wide_profile("exchanged")),
        [RGB],
        tolerance=12,
        warning="profile",
    ),
    Kind("exif_damaged.jpg", save(RGB, quality=95, exif=b"Exif\0\0II*\0\xff\xff\xff\x7f"), [RGB], tolerance=12),
    Kind("several.jpg", several_jpegs, refused="several JPEG pictures one after another"),
    Kind("trailing_data.jpg", followed(save(RGB, quality=95), bytes(9) + b"ftypmp42" * 3), [RGB], tolerance=12),
    Kind("lossless.jls", lambda path: path.write_bytes(jpegls_encode(RGB)), refused="cannot be read"),
    Kind("cut.jpg", cut(save(RGB, quality=95), 0.6), refused="cannot be read"),
    Kind("rgb.bmp", save(RGB), [RGB]),
    Kind("grey.bmp", save(GREY), [GREY]),
    Kind("palette.bmp", save(RGB, "P"), [ADAPTIVE]),
    *(
        Kind(
            f"orientation{value}.{suffix}",
            save(turned(RGB, value), exif=exif(value), **({"quality": 95} if suffix == "jpg" else {"lossless": True})),
            [RGB],
            tolerance=12 if suffix == "jpg" else 0,
        )
        for value in range(1, 9)
        for suffix in ("jpg", "png", "webp")
    ),
    *(
        Kind(
            f"deep_orientation{value}.png",
            png(turned(DEEP, value), 2, chunk(b"eXIf", exif(value).removeprefix(b"Exif\0\0"))),
            [DEEP],
        )
        for value in (1, 6, 8)
    ),
]
KINDS = TIFF_KINDS + OTHER_KINDS
