"""Makes unseen conformance cases: random graphs of any operators with any stores, names, settings, records and queries.

    python -m tests.conformance.oracle.wide --seed N --count M --out DIR

The cases are a function of the seed. They have no ``expected`` section until the oracle has written it.
"""
