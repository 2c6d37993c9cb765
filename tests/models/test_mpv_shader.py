"""User shaders of mpv and libplacebo: passes, tables by QP, refusals; and, if Vulkan is there, their pictures."""

import re
import subprocess

import numpy as np
import pytest
import skimage.data

import codecnn
from codecnn.base.errors import ConfigError, ModelError
from codecnn.filtering.network_filter import FloatFilter
from codecnn.models import as_card, build_graph, create_model, load_model, weights_path
from codecnn.models.graph import Draft, Graph, mpv_shader
from codecnn.pictures.files import Picture
from codecnn.pictures.files.ffmpeg import ffmpeg_path
from tests.helpers.networks import SMALL, awaken

SAMPLE_SCALE = 256 / 255
"""From samples of networks, k / 256, to those of shaders, k / 255."""


def shader_of(name, qp=32):
    network, card = load_model(weights_path(name))
    return mpv_shader(build_graph(network), name, qp, card.nearest_qp)


def evaluate(expression, sizes):
    """Evaluate reverse Polish notation as players do; `sizes` has the values of names such as LUMA.w."""
    operations = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "%": lambda a, b: a % b,
        "=": lambda a, b: a == b,
    }
    stack = []
    for word in expression.split():
        if word in operations:
            second, first = stack.pop(), stack.pop()
            stack.append(operations[word](first, second))
        else:
            stack.append(sizes[word] if word in sizes else float(word))
    (result,) = stack
    return result


def passes_of(text):
    """Return the directives of each pass as a dictionary of lists."""
    found = []
    for block in re.split(r"\n\n(?=//!)", text):
        directives = re.findall(r"^//!(\w+) ?(.*)$", block, flags=re.MULTILINE)
        if any(name == "HOOK" for name, _ in directives):
            found.append({name: [value for key, value in directives if key == name] for name, _ in directives})
    return found


def stored_sizes(text, width, height):
    """Return width and height of every texture that the shader stores for a picture."""
    sizes = {"LUMA.w": width, "LUMA.h": height, "CHROMA.w": (width + 1) // 2, "CHROMA.h": (height + 1) // 2}
    return [
        (evaluate(each["WIDTH"][0], sizes), evaluate(each["HEIGHT"][0], sizes))
        for each in passes_of(text)
        if "SAVE" in each
    ]


@pytest.mark.parametrize(
    ("name", "texels"),
    [
        # The head, and the outputs of the blocks, of 24 channels.
        ("low_cost_5.hevc", [(3, 2)] * 7),
        # 32 channels twice, the block's input and its middle; then those of the 1x3 convolution.
        ("low_cost_17.av1", [(4, 4), (4, 2)] * 5 + [(4, 2)]),
    ],
)
def test_a_pass_stores_each_channel_of_a_cell_once(name, texels):
    text = shader_of(name)
    assert [each["HOOK"] for each in passes_of(text)] == [["LUMA"]] * (len(texels) + 1)
    assert "SAVE" not in passes_of(text)[-1]
    for width, height in ((176, 144), (175, 143)):
        assert stored_sizes(text, width, height) == [(88 * across, 72 * down) for across, down in texels]


def test_a_network_with_chroma_runs_at_chroma_and_adds_luma_when_planes_are_merged():
    passes = passes_of(shader_of("low_cost_yuv_17.hevc"))
    assert [each["HOOK"][0] for each in passes] == ["CHROMA"] * 13 + ["NATIVE"]
    assert [each["SAVE"][0] for each in passes if "SAVE" in each][-1] == "codecnn_y"
    conditions = {each["WHEN"][0] for each in passes if "WHEN" in each}
    (condition,) = conditions
    chroma = {"CHROMA.w": 88, "CHROMA.h": 72}
    assert evaluate(condition, {"LUMA.w": 175, "LUMA.h": 144} | chroma)
    assert not evaluate(condition, {"LUMA.w": 88, "LUMA.h": 72} | chroma)
    assert not evaluate(condition, {"LUMA.w": 175, "LUMA.h": 72} | chroma)


def test_the_margin_of_a_network_with_two_unpadded_convolutions_is_stored():
    """The second convolution reads the first one's samples beyond the picture, at full height and width."""
    text = mpv_shader(build_graph(create_model("rdn", **SMALL)), "rdn", 32, as_card({}).nearest_qp)
    assert stored_sizes(text, 75, 61)[0] == (77 * 2, 63)


def test_the_row_of_a_qp_has_the_values_of_the_nearest_trained_qp():
    network, card = load_model(weights_path("low_cost_5.hevc"))
    graph = build_graph(network)
    text = mpv_shader(graph, "low_cost_5.hevc", 28, card.nearest_qp)
    assert re.search(r"^//!PARAM qp\n(//!.*\n)+28$", text, flags=re.MULTILINE)
    columns, rows = map(int, re.search(r"//!SIZE (\d+) (\d+)", text).groups())
    table = np.frombuffer(bytes.fromhex(re.search(r"^[0-9a-f]{1000,}$", text, flags=re.MULTILINE)[0]), "<f4")
    table = table.reshape(rows, columns, 4)
    nodes = {node.name: node for node in graph.nodes}
    modulation, gain = nodes["modulations.0"].tensors, nodes["y"].tensors["gain"]
    assert (min(card.qps), max(card.qps)) == (17, 42)
    for qp, trained in ((0, 17), (17, 17), (30, 30), (63, 42)):
        np.testing.assert_allclose(table[qp, 0], modulation["factor"][trained, :4], rtol=1e-6)
        np.testing.assert_allclose(table[qp, 1], modulation["offset"][trained, :4], rtol=1e-6)
        np.testing.assert_allclose(table[qp, -1, 0], gain[trained] * SAMPLE_SCALE, rtol=1e-6)


def test_a_network_without_qp_has_no_parameter():
    text = mpv_shader(build_graph(create_model("low_cost_5", planes=["rec_y"], conditioning="plane")), "m", 32, int)
    assert "//!PARAM" not in text
    assert "//!TEXTURE" not in text


@pytest.mark.parametrize(
    ("name", "plane", "advice"),
    [
        ("low_cost_17.hevc_video_mc", "prev_mc_y", "low_cost_17.hevc"),
        ("low_cost_17.avc_video_mc", "prev_mc_y", "low_cost_17.hevc"),
        ("low_cost_17.av1_video_mc", "prev_mc_y", "low_cost_17.av1"),
        ("low_cost_17.vvc_unf", "unf_y", "low_cost_17.vvc"),
        ("low_cost_yuv_17.vvc_video_mc", "unf_y", "low_cost_yuv_17.vvc_video"),
    ],
)
def test_planes_that_players_do_not_have_are_refused_with_the_next_best_weights(name, plane, advice, tmp_path):
    sentence = f"players do not have the plane {plane}, which {name} takes: export {advice}"
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        codecnn.export(name, tmp_path / "m.glsl", "mpv")
    assert not list(tmp_path.iterdir())


def test_other_refusals(tmp_path):
    with pytest.raises(ConfigError, match="QP 64 is out of range: 0 to 63"):
        codecnn.export("low_cost_5", tmp_path / "m.glsl", "mpv", qp=64)
    with pytest.raises(ConfigError, match=r"the format mpv is written to a file that ends in \.glsl"):
        codecnn.export("low_cost_5", tmp_path / "m.onnx", "mpv")
    with pytest.raises(ConfigError, match="holds integers: name the float weights for --format mpv"):
        codecnn.export("low_cost_5.int8", tmp_path / "m.glsl", "mpv")
    draft = Draft()
    edge = draft.add("wide", "edge", draft.plane("rec_y"))
    change = draft.weights("change", edge, np.ones((1, 1, 3, 3)), np.zeros(1), pad=0)
    draft.add("y", "output", change, "rec_y", tensors={"gain": np.ones(1)}, crop=0)
    with pytest.raises(ModelError, match=r"node 'wide' \(edge\) has no form in a shader: use the format onnx"):
        mpv_shader(Graph(tuple(draft.nodes)), "m", 32, int)


def test_export_writes_the_shader(tmp_path):
    facts = codecnn.export("low_cost_5.hevc", tmp_path / "m.glsl", "mpv")
    assert facts == {"passes": 8, "qp": 24}
    assert (tmp_path / "m.glsl").read_text() == shader_of("low_cost_5.hevc", 24)


SHOW = """
//!HOOK NATIVE
//!BIND HOOKED
vec4 hook() {{ return vec4(HOOKED_texOff(0)[{component}], 0.501960784, 0.501960784, 1.0); }}
"""
"""Pass that shows a component as luma, since libplacebo's way from and to 4:2:0 resamples chroma."""


def run_ffmpeg(arguments, content, folder):
    """Run ffmpeg on raw 8-bit 4:2:0 pictures, or whatever the arguments say, and return its standard output."""
    command = [ffmpeg_path(), "-v", "error", *arguments, "-"]
    finished = subprocess.run(command, input=content, capture_output=True, cwd=folder, check=False)
    assert finished.returncode == 0, finished.stderr.decode()[-2000:]
    return finished.stdout


def raw(width, height, pixels="yuv420p"):
    return ["-f", "rawvideo", "-pix_fmt", pixels, "-s", f"{width}x{height}"]


def planes_of(content, width, height):
    """Return the three planes of a raw 8-bit 4:2:0 picture."""
    shapes = [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2
    samples = np.frombuffer(content, np.uint8)
    parts = np.split(samples, np.cumsum([h * w for h, w in shapes]))
    return [part.reshape(shape) for part, shape in zip(parts[:3], shapes, strict=True)]


def play(text, planes, folder):
    """Return luma, shape (h, w) uint8, of an 8-bit 4:2:0 picture that libplacebo has processed with a shader."""
    (folder / "shader.glsl").write_text(text)
    height, width = planes[0].shape
    options = "custom_shader_path=shader.glsl:dithering=none:upscaler=nearest:downscaler=nearest:format=yuv420p"
    filters = ["-init_hw_device", "vulkan", "-vf", f"libplacebo={options}"]
    content = b"".join(plane.tobytes() for plane in planes)
    shown = run_ffmpeg([*raw(width, height), "-i", "-", *filters, *raw(width, height)], content, folder)
    return planes_of(shown, width, height)[0]


@pytest.fixture(scope="module")
def vulkan(tmp_path_factory):
    """Skip unless ffmpeg has libplacebo and Vulkan, perhaps in software (mesa-vulkan-drivers, libvulkan1 of Debian)."""
    flat = [np.full(shape, 100, np.uint8) for shape in ((16, 16), (8, 8), (8, 8))]
    try:
        shown = play(SHOW.format(component=0), flat, tmp_path_factory.mktemp("probe"))
    except AssertionError as error:
        pytest.skip(f"needs Vulkan for libplacebo: apt-get install mesa-vulkan-drivers libvulkan1 ({str(error)[:200]})")
    assert (shown == 100).all()


def coded_picture(folder, width, height):
    """Return the planes of a photograph, and those of its picture coded by libx265 at QP 37."""
    photograph = skimage.data.chelsea()[40 : 40 + height, 90 : 90 + width].tobytes()
    original = run_ffmpeg([*raw(width, height, "rgb24"), "-i", "-", *raw(width, height)], photograph, folder)
    coding = ["-c:v", "libx265", "-qp", "37", "-x265-params", "log-level=error", "-f", "hevc"]
    stream = run_ffmpeg([*raw(width, height), "-i", "-", *coding], original, folder)
    decoded = run_ffmpeg(["-f", "hevc", "-i", "-", *raw(width, height)], stream, folder)
    return planes_of(original, width, height), planes_of(decoded, width, height)


def psnr(plane, original):
    return 10 * np.log10(255**2 / np.mean((plane.astype(float) - original) ** 2))


RANDOM = {"rdn": SMALL, "low_cost_17": {"features": 8, "blocks": 2, "conditioning": "plane"}}
"""Networks with other operations: concatenations, two unpadded convolutions, and the QP as a plane."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["low_cost_5.hevc", "low_cost_17.vvc_video", "low_cost_yuv_17.hevc", *RANDOM])
def test_libplacebo_shows_the_picture_that_the_float_filter_computes(name, vulkan, tmp_path):
    if "." in name:
        network, card = load_model(weights_path(name))
    else:
        network, card = awaken(create_model(name, **RANDOM[name]), std=0.1), as_card({})
    # Without the last row and column, the picture has an odd height and width, and chroma of the same size as before.
    (original, *_), (luma, *chroma) = coded_picture(tmp_path, 150, 122)
    original, picture = original[:-1, :-1], Picture((np.ascontiguousarray(luma[:-1, :-1]), *chroma), 8)
    text = mpv_shader(build_graph(network), name, 37, card.nearest_qp)
    types = {"slice_type": np.ones(luma.shape, np.float32)[:-1, :-1]} if "slice_type" in network.planes else {}
    filtered = FloatFilter(network, card=card)(picture, 37, types)
    for component, (before, expected) in enumerate(zip(picture.planes, filtered.planes, strict=True)):
        if component and len(network.outputs) == 1:
            break
        if component:
            shown = play(text + SHOW.format(component=component), picture.planes, tmp_path)[::2, ::2]
        else:
            shown = play(text, picture.planes, tmp_path)
        assert np.mean(before != expected) > 0.02
        difference = np.abs(shown.astype(int) - expected)
        assert np.mean(difference <= 1) > 0.999
        edges = np.concatenate([difference[0], difference[-1], difference[:, 0], difference[:, -1]])
        assert np.mean(edges == 0) > 0.75
        if component == 0 and card.qps:
            assert abs(psnr(shown, original) - psnr(expected, original)) < 0.01
