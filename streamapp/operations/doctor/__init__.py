"""``streamapp doctor``: finds settings and states by which an application loses or doubles records, or stops."""
