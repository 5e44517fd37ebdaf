"""The loop: run and trajectory, blocks of steps, stopping, backtracking, checkpoints, devices."""
