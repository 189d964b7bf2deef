"""Schemas, values and tables of the reference application."""
