"""The page of the decoder lists the functions of each clause of H.266, and no function is without a clause."""

import pytest

from tools import clauses

WITHOUT_CLAUSE = {
    "block_state.store_chroma_block": "stores properties of blocks that deblocking reads",
    "block_state.store_luma_block": "stores properties of blocks that deblocking reads",
    "block_state.store_unit": "stores properties of blocks that deblocking reads",
    "block_state.packed_block": "packs properties of blocks that deblocking reads",
    "block_state.put_block": "stores properties of blocks that deblocking reads",
    "borrowed.borrowed_decoded": "passes arrays to compiled functions",
    "borrowed.borrowed_records": "passes arrays to compiled functions",
    "borrowed.borrowed_samples": "passes arrays to compiled functions",
    "coding_units.block_position": "reads the log",
    "coding_units.next_transform_unit": "reads the log",
    "frame.coding_unit": "reads the log",
    "frame.residual_limit": "is the storage of residuals in decoders; the standard has no limit",
    "frame.transform_unit": "reads the log",
    "inter_prediction.entry_of": "packs a list and an index",
    "motion_candidates.clear_candidate": "clears a record",
    "motion_candidates.copy_candidate": "copies a record",
    "motion_candidates.copy_motion": "copies a record",
    "syntax.cabac.hash_bin": "hashes bins",
    "syntax.coding_tree.pop": "takes a node from a stack",
    "syntax.coding_tree.push": "puts a node on a stack",
    "syntax.log_writer.begin_transform_unit": "writes the log",
    "syntax.log_writer.begin_unit": "writes the log",
    "syntax.log_writer.end_unit": "writes the log",
    "syntax.log_writer.keep_block": "writes the log",
    "syntax.log_writer.keep_level": "writes the log",
    "syntax.log_writer.keep_palette": "writes the log",
    "syntax.neighbours.cell": "reads properties of blocks",
    "syntax.neighbours.store_size": "stores properties of blocks",
    "syntax.neighbours.store_unit": "stores properties of blocks",
    "syntax.residual.clear_levels": "clears scratch memory",
    "syntax.residual_ts.clear_signs": "clears scratch memory",
    "syntax.transform.log2": "is arithmetic",
    "syntax.unit_rows.append_row": "writes the table of coding units",
    "syntax.unit_rows.bdpcm_direction": "writes the table of coding units",
    "transforms.clear_coefficients": "clears scratch memory",
}
"""Compiled functions that implement no clause, and what they do instead."""


def test_page_lists_the_functions_of_today():
    assert clauses.PAGE.read_text() == clauses.page(), "write it anew: python tools/clauses.py"


def test_each_compiled_function_names_its_clause():
    without = {f"{f.module}.{f.name}" for f in clauses.functions() if f.compiled and not f.clauses}
    assert without == set(WITHOUT_CLAUSE)


def test_a_clause_has_one_title():
    assert {number: names for number, names in clauses.titles().items() if len(names) > 1} == {}


def test_clauses_of_a_docstring():
    text = "Summary.\n\nClause 8.1.2, First\ntitle.\nPart of clause 8.5.2.13, A..B, c.\nClause C.5.2.\n\nClauses."
    assert clauses.clauses_of(text) == (
        ("8.1.2", "First title", False),
        ("8.5.2.13", "A..B, c", True),
        ("C.5.2", "", False),
    )


def test_line_that_is_no_clause_is_an_error():
    with pytest.raises(ValueError, match="not a clause"):
        clauses.clauses_of("Summary.\n\nClause 8.1.2 without a comma.")
