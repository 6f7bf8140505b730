"""What a plan costs: one file per concern, every formula with its symbols, units and source.

Formulas take Python numbers or numpy arrays alike and keep the same order of operations for both, so that a table
and the judge get the same floating-point value before it is rounded.
"""
