"""What coding with an encoder library inside ffmpeg takes, whichever library it is."""

import functools
import re
from collections.abc import Mapping

from codecnn.video import VideoFormat, ffmpeg_identity, require_encoder, run


@functools.cache
def library_identity(ffmpeg: str, library: str, pix_fmt: str, version: str) -> str:
    """Library and ffmpeg with their versions; `version` is the pattern of what the library prints when it starts.

    Raises ToolMissingError when this ffmpeg was built without the library.
    """
    require_encoder(ffmpeg, library)
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-loglevel", "verbose", "-f", "lavfi"]
    argv += ["-i", "color=size=64x64:rate=1:duration=1", "-frames:v", "1", "-pix_fmt", pix_fmt]
    done = run([*argv, "-c:v", library, "-f", "null", "-"], what=f"asking {library} for its version")
    found = re.search(version, done.stderr)
    return f"{library} {found[1] if found else 'of unknown version'}, {ffmpeg_identity(ffmpeg)}"


def raw_input(ffmpeg: str, source: str, source_format: VideoFormat, *log: str) -> list[str]:
    """The beginning of a command that reads the raw YUV file `source`; `log` are ffmpeg's arguments on what it says."""
    size = f"{source_format.width}x{source_format.height}"
    argv = [ffmpeg, "-hide_banner", "-nostdin", "-y", *log, "-f", "rawvideo"]
    argv += ["-pix_fmt", source_format.ffmpeg_pix_fmt, "-s", size, "-r", str(source_format.fps or 30), "-i", source]
    return argv


def joined(params: Mapping[str, str]) -> str:
    """Parameters of a library as ffmpeg hands them on."""
    return ":".join(f"{key}={value}" for key, value in params.items())
