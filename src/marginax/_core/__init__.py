"""What knows no statistics: trees, blocks, chunks, small matrices, programs, files, checks."""
