"""Graphs as user shaders of mpv and libplacebo.

A user shader is a text of passes in GLSL, here compute shaders by `Plan`, a parameter for the QP, and a texture with
the tables by QP. Weights are constants in the text. Players store in half precision; sums are in single precision.

The format: docs/custom-shaders.md of libplacebo, and the option --glsl-shaders in mpv's manual.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.planes import SLICE_TYPE_PLANE, SLICE_TYPES
from codecnn.models.graph.nodes import QPS, Array, Graph, Node, same_padding
from codecnn.models.graph.shader_plan import Plan, Texel, is_spatial, unfit
from codecnn.models.planes import CENTRED_SCALE

_INTER = CENTRED_SCALE * (SLICE_TYPES["B"] - 0.5)
"""The plane `slice_type` in shaders, which do not learn the type: that of most pictures of a video."""

_SOURCES = {"rec_y": ("LUMA", 0), "rec_u": ("CHROMA", 0), "rec_v": ("CHROMA", 1)}
"""The player's texture that has a plane, and the component in it."""

_THREADS = 8
"""Width and height of a work group in cells."""

_SAMPLE_SCALE = 255 / 256
"""Factor from the samples of shaders, k / 255, to those of networks, k / 256, at 8 bits.

At other bit depths samples of shaders are k / 2^bits times a factor from 1 to 256/255, which differs between players.
"""

_WHEN_420 = "//!WHEN LUMA.w 1 + LUMA.w 1 + 2 % - 2 / CHROMA.w = LUMA.h 1 + LUMA.h 1 + 2 % - 2 / CHROMA.h = *"
"""Condition that chroma has half the width and height of luma, rounded up."""

_ROUNDED = "vec4 rounded(vec4 x) { return uintBitsToFloat((floatBitsToUint(x) + 0x1000u) & 0xffffe000u); }"
"""Function that rounds features to the 11 bits of half precision, since some drivers cut off the bits after them."""

_TITLE = "//!DESC TITLE"
"""Line of a pass for its name, which is known when all passes are."""

_MERGE = f"""\
//!HOOK NATIVE
//!BIND HOOKED
//!BIND codecnn_y
{_TITLE}

vec4 hook() {{
vec4 colour = HOOKED_texOff(0);
ivec2 q = ivec2(HOOKED_pos * HOOKED_size);
vec4 change = texelFetch(codecnn_y_raw, q / 2, 0);
colour.x = clamp(colour.x + change[q.y % 2 * 2 + q.x % 2], 0.0, 1.0);
return colour;
}}"""
"""Pass that adds the stored residual of luma when the planes are merged.

A player processes luma before it has chroma, which the network needs for luma.
"""


PLAYER_PLANES = (*_SOURCES, SLICE_TYPE_PLANE)
"""Planes that shaders read or assume; those of chroma only for networks that filter chroma."""


def mpv_shader(graph: Graph, name: str, qp: int, nearest_qp: Callable[[int], int]) -> str:
    """Convert a graph to a user shader for pictures of any size and bit depth; 4:2:0 if the graph filters chroma.

    If the graph depends on the QP, the slice QP from 0 to 63 is the shader's parameter `qp`. A graph that takes the
    slice type treats all pictures as B pictures, since players do not know the type. The shader repeats the samples of
    the picture's edges for the halo, and clips its output to the range of samples.

    Args:
        graph: The graph.
        name: Name of the network, which players show.
        qp: Default value of the parameter.
        nearest_qp: Function from a slice QP to the QP that the network takes: `Card.nearest_qp`.

    Raises:
        ConfigError: `qp` is out of range.
        ModelError: The graph takes a plane that players do not have, or has a node without a form in a shader.
    """
    if not 0 <= qp < QPS:
        raise ConfigError(f"QP {qp} is out of range: 0 to {QPS - 1}")
    missing = missing_planes(graph)
    if missing:
        raise ModelError(f"players do not have the plane {missing[0]}, which the network takes: use the format onnx")
    shader = _Shader(Plan(graph))
    passes = shader.passes()
    blocks = [f"// {name}, written by codecnn export --format mpv"]
    if shader.tables:
        rows = np.concatenate(shader.tables, axis=1)[[nearest_qp(each) for each in range(QPS)]]
        blocks += [
            f"//!PARAM qp\n//!DESC QP of the video\n//!TYPE int\n//!MINIMUM 0\n//!MAXIMUM {QPS - 1}\n{qp}",
            f"//!TEXTURE codecnn_qp\n//!SIZE {rows.shape[1] // 4} {QPS}\n//!FORMAT rgba32f\n//!FILTER NEAREST\n"
            + rows.astype("<f4").tobytes().hex(),
        ]
    for index, text in enumerate(passes, start=1):
        blocks.append(text.replace(_TITLE, f"//!DESC {name} {index} of {len(passes)}"))
    return "\n\n".join(blocks) + "\n"


def missing_planes(graph: Graph) -> list[str]:
    """Return the planes of a graph that a player does not have where it runs the shader."""
    known = PLAYER_PLANES if len(graph.outputs) == 3 else ("rec_y", SLICE_TYPE_PLANE)
    return [name for name in graph.planes if name not in known]


class _Shader:
    """A shader under construction.

    Attributes:
        plan: The passes.
        colour: Whether the shader filters chroma; it then runs when the player processes chroma.
        tables: Tables by QP, (64, 4·n), for the columns of the texture.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.colour = len(plan.graph.outputs) == 3
        self.tables: list[Array] = []
        if self.colour and plan.cell != 2:
            raise ModelError(f"shaders for chroma have cells of 2x2 samples, not {plan.cell}x{plan.cell}: use onnx")

    def table(self, values: Array) -> str:
        """Add a table (64, up to 4) by QP, and return the expression of the row for the QP."""
        self.tables.append(_padded(values, axis=1))
        return f"QP({len(self.tables) - 1})"

    def passes(self) -> list[str]:
        """Return the text of all passes, in which the title is missing."""
        texts = [self._store(stage) for stage in self.plan.stores]
        return texts + (self._colour_outputs() if self.colour else [self._luma_output()])

    def _store(self, stage: int) -> str:
        """Return the pass that computes the texture of a stage."""
        store = self.plan.stores[stage]
        body = _Pass(self, stage)
        for texel, place in store.places.items():
            value = body.texel(texel)
            body.line(
                f"imageStore(out_image, cell * ivec2({store.across}, {store.down}) + ivec2{place}, rounded({value}));"
            )
        return body.text((store.across, store.down), store.margin, f"codecnn_{stage}")

    def _luma_output(self) -> str:
        body = _Pass(self, self.plan.stages["y"])
        residual, cell = body.residual("y"), self.plan.cell
        for index, change in enumerate(residual):
            place = f"cell * {cell} + ivec2({index % cell}, {index // cell})"
            sample = f"clamp({self._base('y', place)} + {change}, 0.0, 1.0)"
            body.line(f"imageStore(out_image, {place}, vec4({sample}, 0.0, 0.0, 1.0));")
        return body.text((cell, cell))

    def _colour_outputs(self) -> list[str]:
        if len(self.plan.nodes["y"].inputs) == 1:
            raise unfit(self.plan.nodes["y"])
        luma = _Pass(self, self.plan.stages["y"])
        luma.line(f"imageStore(out_image, cell, rounded(vec4({', '.join(luma.residual('y'))})));")
        chroma = _Pass(self, max(self.plan.stages["u"], self.plan.stages["v"]))
        samples = [f"clamp({self._base(name, 'cell')} + {chroma.residual(name)[0]}, 0.0, 1.0)" for name in ("u", "v")]
        chroma.line(f"imageStore(out_image, cell, vec4({', '.join(samples)}, 0.0, 1.0));")
        return [luma.text((1, 1), save="codecnn_y"), chroma.text((1, 1)), _MERGE]

    def _base(self, output: str, place: str) -> str:
        """Return the decoded sample that an output is added to, or 1/2."""
        if len(self.plan.nodes[output].inputs) == 1:
            return _number(0.5 / _SAMPLE_SCALE)
        texture, component = _SOURCES[f"rec_{output}"]
        return f"{texture}_mul * texelFetch({texture}_raw, {place}, 0)[{component}]"


class _Pass:
    """Body of a compute shader: statements for the cell `p` of the picture, which is `cell` of the texture."""

    def __init__(self, shader: _Shader, stage: int) -> None:
        self.shader = shader
        self.plan = shader.plan
        self.stage = stage
        self.lines: list[str] = []
        self.values: dict[Texel, str] = {}
        self.stores: set[int] = set()
        self.tables = len(shader.tables)

    def line(self, text: str) -> None:
        """Add a statement."""
        self.lines.append(text)

    def text(self, block: tuple[int, int], margin: int = 0, save: str | None = None) -> str:
        """Return the pass with its header.

        Args:
            block: Texels that a thread writes across and down.
            margin: Cells around the picture that are computed too.
            save: Name of the written texture; None for the player's texture of the hook.
        """
        hook = "CHROMA" if self.shader.colour else "LUMA"
        binds = ["LUMA", "CHROMA"] if self.shader.colour else ["LUMA"]
        binds += [f"codecnn_{stage}" for stage in sorted(self.stores)]
        binds += ["codecnn_qp"] if len(self.shader.tables) > self.tables else []
        header = [f"//!HOOK {hook}", *(f"//!BIND {name}" for name in binds)]
        header += [f"//!SAVE {save}", "//!COMPONENTS 4"] if save else []
        header += [_WHEN_420] if self.shader.colour else []
        if save:
            sides = zip(("WIDTH", "HEIGHT"), "wh", block, strict=True)
            header += [f"//!{name} {self._cells(f'{hook}.{side}', margin)} {count} *" for name, side, count in sides]
        threads = [_THREADS * count for count in block] + [_THREADS] * 2
        header += [f"//!COMPUTE {' '.join(map(str, threads))}", _TITLE, ""]
        start = ["void hook() {", "ivec2 cell = ivec2(gl_GlobalInvocationID.xy);", f"ivec2 p = cell - {margin};"]
        return "\n".join([*header, *self._functions(hook), *start, *self.lines, "}"])

    def _cells(self, side: str, margin: int) -> str:
        """Return the number of cells along a side of the player's texture, in reverse Polish notation."""
        cell = 1 if self.shader.colour else self.plan.cell
        whole = side if cell == 1 else f"{side} {cell - 1} + {side} {cell - 1} + {cell} % - {cell} /"
        return f"{whole} {2 * margin} +" if margin else whole

    def _functions(self, hook: str) -> Iterable[str]:
        """Return the functions that read samples, stored texels and tables."""
        for name in self.plan.graph.planes:
            if name == SLICE_TYPE_PLANE:
                yield f"float {name}(ivec2 q) {{ return {_number(_INTER)}; }}"
                continue
            texture, component = _SOURCES[name]
            scale = _number(CENTRED_SCALE * _SAMPLE_SCALE)
            yield (
                f"float {name}(ivec2 q) {{ q = clamp(q, ivec2(0), textureSize({texture}_raw, 0) - 1); "
                f"return {scale} * {texture}_mul * texelFetch({texture}_raw, q, 0)[{component}] - 2.0; }}"
            )
        cell = 1 if self.shader.colour else self.plan.cell
        yield (
            f"bool inside(ivec2 q, int margin) {{ ivec2 cells = (textureSize({hook}_raw, 0) + {cell - 1}) / {cell}; "
            "return all(greaterThanEqual(q, ivec2(-margin))) && all(lessThan(q, cells + margin)); }"
        )
        for stage in sorted(self.stores):
            store = self.plan.stores[stage]
            yield (
                f"#define T{stage}(q, x, y) texelFetch(codecnn_{stage}_raw, "
                f"((q) + {store.margin}) * ivec2({store.across}, {store.down}) + ivec2(x, y), 0)"
            )
        yield _ROUNDED
        yield "#define QP(column) texelFetch(codecnn_qp, ivec2(column, qp), 0)"

    def texel(self, texel: Texel) -> str:
        """Compute four channels for the cell `p`, and return the name of the variable."""
        if texel not in self.values:
            if self.plan.stages[texel[0]] < self.stage:
                self._define(texel, self._stored(texel, "p"))
            else:
                self._compute(texel)
        return self.values[texel]

    def residual(self, output: str) -> list[str]:
        """Compute what a network adds to the samples of an output in the cell, and return it sample by sample."""
        gain = self.plan.nodes[output].tensors["gain"] / _SAMPLE_SCALE
        scale = _number(gain[0]) if len(gain) == 1 else self.shader.table(gain[:, None]) + ".x"
        name = self.plan.residual(output)
        values = [self.texel(texel) for texel in self.plan.texels(name)]
        channels = range(self.plan.graph.extents[name].channels)
        return [f"{scale} * {values[channel // 4]}[{channel % 4}]" for channel in channels]

    def _define(self, texel: Texel, expression: str) -> None:
        self.values[texel] = f"v{len(self.values)}"
        self.line(f"vec4 {self.values[texel]} = {expression};")

    def _stored(self, texel: Texel, place: str) -> str:
        """Return the expression that reads a stored texel of the cell `place`."""
        stage = self.plan.stages[texel[0]]
        self.stores.add(stage)
        column, row = self.plan.stores[stage].places[texel]
        return f"T{stage}({place}, {column}, {row})"

    def _compute(self, texel: Texel) -> None:
        name, index = texel
        node = self.plan.nodes[name]
        if node.op == "conv":
            if is_spatial(node) or self.plan.is_source(node.inputs[0]):
                self._around(node)
            else:
                self._pointwise(node, [index] if self._is_hidden(node) else range(len(self.plan.texels(name))))
            return
        inputs = [self.texel(self.plan.texels(part)[index]) for part in node.inputs]
        if node.op == "add":
            self._define(texel, " + ".join(inputs))
        elif node.op == "modulate":
            rows = [node.tensors[part][:, 4 * index : 4 * index + 4] for part in ("factor", "offset")]
            factor, offset = map(self.shader.table, rows)
            self._define(texel, f"{inputs[0]} * {factor} + {offset}")
        else:
            raise unfit(node)

    def _is_hidden(self, node: Node) -> bool:
        """Return whether only one 1x1 convolution of the same pass takes a node.

        Such a node, the wide middle of a block, is computed four channels at a time, so that they need few registers.
        """
        users = self.plan.users[node.name]
        return len(users) == 1 and users[0].op == "conv" and self.plan.stages[users[0].name] == self.stage

    def _start(self, node: Node, outputs: Iterable[int]) -> None:
        """Define the variables of a convolution: its bias, and what is added to it."""
        bias = _padded(node.tensors["bias"]).reshape(-1, 4)
        for index in outputs:
            added = [self.texel(self.plan.texels(name)[index]) for name in node.inputs[1:]]
            self._define((node.name, index), " + ".join([_vector(bias[index]), *added]))

    def _accumulate(self, node: Node, outputs: Iterable[int], weight: Array, x: str) -> None:
        """Add the products of four input channels `x` with their weights, shape (outputs, 4)."""
        for index in outputs:
            product = _product(weight[4 * index : 4 * index + 4], x)
            if product is not None:
                self.line(f"{self.values[node.name, index]} += {product};")

    def _finish(self, node: Node, outputs: Iterable[int]) -> None:
        for index in outputs if node.values["relu"] else ():
            value = self.values[node.name, index]
            self.line(f"{value} = max({value}, 0.0);")

    def _pointwise(self, node: Node, outputs: Sequence[int]) -> None:
        """Compute some texels of a 1x1 convolution."""
        weight = _dense(node)[:, :, 0, 0]
        self._start(node, outputs)
        for index, texel in enumerate(self.plan.texels(node.inputs[0])):
            self._accumulate(node, outputs, weight[:, 4 * index : 4 * index + 4], self.texel(texel))
        self._finish(node, outputs)

    def _around(self, node: Node) -> None:
        """Compute a convolution that reads planes or stored texels of the cells around `p`.

        A padded convolution sees zeros beyond its input, others never read there.
        """
        weight, source = _dense(node), node.inputs[0]
        outputs = range(ceil_div(len(node.tensors["bias"]), 4))
        self._start(node, outputs)
        rows, columns = same_padding(weight)
        for row, column in np.ndindex(weight.shape[2:]):
            self.line(f"{{ ivec2 q = p + ivec2({column - columns}, {row - rows});")
            if self.plan.is_source(source):
                reads = self._planes(source)
            else:
                reads = [self._stored(texel, "q") for texel in self.plan.texels(source)]
            if node.values["pad"] and is_spatial(node):
                self.line(f"bool seen = inside(q, {self.plan.margin(source)});")
                reads = [f"seen ? {read} : vec4(0.0)" for read in reads]
            for index, read in enumerate(reads):
                self.line(f"vec4 x{index} = {read};")
                self._accumulate(node, outputs, weight[:, 4 * index : 4 * index + 4, row, column], f"x{index}")
            self.line("}")
        self._finish(node, outputs)

    def _planes(self, name: str) -> list[str]:
        """Return the expressions that read rearranged planes at the cell `q`, four channels each."""
        channels = self._channels(name)
        channels += ["0.0"] * (-len(channels) % 4)
        return [f"vec4({', '.join(channels[start : start + 4])})" for start in range(0, len(channels), 4)]

    def _channels(self, name: str) -> list[str]:
        node = self.plan.nodes[name]
        match node.op:
            case "plane":
                return [f"{name}(q)"]
            case "qp":
                return [self.shader.table((np.arange(QPS)[:, None] - 32) / 16) + ".x"]
            case "concat":
                return [channel for part in node.inputs for channel in self._channels(part)]
            case "unshuffle" if self.plan.nodes[node.inputs[0]].op == "plane":
                factor = node.values["factor"]
                places = [f"ivec2({column}, {row})" for row, column in np.ndindex(factor, factor)]
                return [f"{node.inputs[0]}(q * {factor} + {place})" for place in places]
            case "unshuffle" if self.plan.nodes[node.inputs[0]].op == "qp":
                return self._channels(node.inputs[0]) * node.values["factor"] ** 2
            case _:
                raise unfit(node)


def _dense(node: Node) -> Array:
    """Return the weight of a convolution without groups, with numbers of channels that are multiples of 4."""
    weight, groups = node.tensors["weight"], node.values["groups"]
    outputs, width = weight.shape[:2]
    full = np.zeros((outputs, width * groups, *weight.shape[2:]))
    for group, rows in enumerate(np.split(np.arange(outputs), groups)):
        full[rows, group * width : (group + 1) * width] = weight[rows]
    return _padded(_padded(full), axis=1)


def _padded(values: Array, axis: int = 0) -> Array:
    """Return an array with zeros at the end of an axis, so that its length is a multiple of 4."""
    widths = [(0, -values.shape[each] % 4 if each == axis else 0) for each in range(values.ndim)]
    return np.pad(values, widths)


def _product(block: Array, x: str) -> str | None:
    """Return the product of a 4x4 block of weights and the vector `x`; None if the block is zero."""
    if not block.any():
        return None
    diagonal = np.diag(block)
    if np.array_equal(block, np.diag(diagonal)):
        return f"{_vector(diagonal)} * {x}"
    return f"mat4({', '.join(_number(value) for value in block.T.flat)}) * {x}"


def _vector(values: Array) -> str:
    return f"vec4({', '.join(_number(value) for value in values)})"


def _number(value: Any) -> str:
    """Return a number to seven digits, as many as single precision has."""
    text = f"{float(value):.7g}"
    return text if set(text) & set(".e") else f"{text}.0"
