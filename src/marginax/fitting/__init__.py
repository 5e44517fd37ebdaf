"""fit: the plan, its stages and strategies, what it warns of, and the Fit that it returns."""
