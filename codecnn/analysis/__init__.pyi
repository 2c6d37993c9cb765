from .correlation import correlate as correlate
from .ctu_table import CtuTable as CtuTable
from .ctu_table import check_table as check_table
from .ctu_table import load_table as load_table
from .report import write_correlation as write_correlation
from .results import Correlation as Correlation
from .statistics import bootstrap_counts as bootstrap_counts
from .statistics import bootstrap_interval as bootstrap_interval
