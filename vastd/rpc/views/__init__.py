"""Records as clients see them: one module per noun."""
