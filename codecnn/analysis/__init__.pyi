from ._correlation import correlate as correlate
from ._ctu_table import CtuTable as CtuTable
from ._ctu_table import check_table as check_table
from ._ctu_table import load_table as load_table
from ._report_files import write_correlation as write_correlation
from ._results import Correlation as Correlation
