"""Helpers for all other packages of streamapp. Applications do not import them. Helpers import only the errors."""
