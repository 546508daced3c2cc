"""The parts of train_digits.py: data, model, parallelism, checkpoints and reports."""
