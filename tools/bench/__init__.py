"""`make bench`: the limits of the design, measured on real servers.

Ratios gate, taken within one run, interleaved and by their median, because machines differ and are noisy; absolute figures
are reported. Each measure is one module here.
"""
