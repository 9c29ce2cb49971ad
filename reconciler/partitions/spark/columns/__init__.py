"""Tables as DataFrames, in and out, checked row by row."""
