"""``streamapp offsets``: where a group is, and how it is put somewhere else."""
