"""Plans how to train a large model on a given cluster, and proves that its answer is the best one."""

__version__ = "0.1.0"
