"""Coding trees of coded pictures: the CU table, its readers and writers, and planes derived from it.

`table` holds the CU table and paints planes from it. `vvc_stream`, `x265_analysis` and `vtm_statistics` read it from
VVC bitstreams, x265's analysis files and VTM's traces; `files` selects among them by the name of a file.
`stream_planes` derives planes from a VVC bitstream, and `partitions` processes many bitstreams.
"""
