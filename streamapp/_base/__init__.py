"""Helpers for all other packages of streamapp, but not for applications. Helpers import only the errors."""
