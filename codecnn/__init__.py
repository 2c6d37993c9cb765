"""codecnn: training sets, training, analysis and evaluation of CNN in-loop filters for VVC and HEVC."""

__version__ = "0.1.0"
