"""Errors that codecnn raises on purpose.

All classes derive from `CodecnnError`, and each also inherits the built-in exception that fits, so that callers may
catch either.
"""


class CodecnnError(Exception):
    """Base class of the errors that codecnn raises on purpose; the message is one sentence for the user."""


class ConfigError(CodecnnError, ValueError):
    """A recipe, configuration, option or argument has an invalid value."""


class ConversionError(ConfigError):
    """A video must be converted to OUT.mkv before it can be filtered, which loses the QP; the message ends with how."""


class UsageError(ConfigError):
    """The options of a function leave it nothing to do, or contradict each other; a command ends with status 2."""


class UnknownArgumentError(ConfigError, TypeError):
    """A function was called with a keyword argument that it does not have."""


class FormatError(CodecnnError, ValueError):
    """A picture, video or bitstream does not have the expected geometry or syntax."""


class UnsupportedError(FormatError):
    """A stream uses a part of its standard that codecnn does not support; the stream itself may be valid."""


class MissingFileError(CodecnnError, FileNotFoundError):
    """A file that the user named does not exist or cannot be read."""


class OutputError(CodecnnError, OSError):
    """An output cannot be written, or writing it would destroy a file that codecnn did not write."""


class ToolMissingError(CodecnnError, FileNotFoundError):
    """A required program, encoder library or Python package is not installed."""


class EncoderError(CodecnnError, RuntimeError):
    """An encoder or decoder failed, or did not keep to its settings.

    Attributes:
        report: Error output of the program that failed, if one did.
    """

    def __init__(self, message: str, report: str = "") -> None:
        super().__init__(message)
        self.report = report


class StoreError(CodecnnError, RuntimeError):
    """A store is damaged or in use, or does not contain the requested data."""


class WorkerError(CodecnnError, RuntimeError):
    """Workers of a cluster fail repeatedly, or their files do not appear on this machine."""


class ModelError(CodecnnError, ValueError):
    """A network and its options, planes or weights do not fit together."""


class TableError(CodecnnError, ValueError):
    """A table of measurements lacks columns or values that an analysis needs."""


class UserCodeWarning(UserWarning):
    """Code outside of codecnn, such as a network of the user, does something that may not be intended."""


class DiskFullError(CodecnnError, OSError):
    """The disk is full or a file too large for it; the incomplete file has been removed."""


class StoppedError(CodecnnError, RuntimeError):
    """A signal ended work that can be continued.

    Attributes:
        signal: Number of the signal.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal
