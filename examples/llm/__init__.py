"""The parts of train_llm.py: text, model, attention, experts, layout, parallelism, checkpoints and generation."""
