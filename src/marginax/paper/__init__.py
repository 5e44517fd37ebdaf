"""The source paper's experiments, as written and as its authors' released code runs them."""
