"""One error tree. Each class also inherits the built-in that fits, so callers may catch either."""


class CodecnnError(Exception):
    """Base of every error codecnn raises on purpose; its text is one sentence for the user."""


class ConfigError(CodecnnError, ValueError):
    """A recipe, a configuration or an option carries a value that cannot be used."""


class FormatError(CodecnnError, ValueError):
    """A picture or video file does not have the geometry or syntax it should have."""


class UnsupportedError(FormatError):
    """A stream that may be whole uses a part of its standard that codecnn does not read."""


class MissingFileError(CodecnnError, FileNotFoundError):
    """A file the user named does not exist."""


class ToolMissingError(CodecnnError, FileNotFoundError):
    """An executable or encoder library that the work needs is not here."""


class EncoderError(CodecnnError, RuntimeError):
    """An encoder or decoder failed, or did something other than it was asked to do."""


class StoreError(CodecnnError, RuntimeError):
    """A training-set store is damaged, busy, or lacks what was asked of it."""


class WorkerError(CodecnnError, RuntimeError):
    """Workers of a cluster die at what they were sent, or leave nothing of it here."""


class ModelError(CodecnnError, ValueError):
    """A network, its options, its planes or its weights do not fit."""


class TableError(CodecnnError, ValueError):
    """A table of measurements lacks columns or values that an analysis needs."""


class DiskFullError(CodecnnError, OSError):
    """The disk ran out of space; what was being written has been removed."""


class StoppedError(CodecnnError, RuntimeError):
    """A signal ended work that can be continued; `signal` is its number."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
