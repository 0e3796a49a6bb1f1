"""Records what a Python engine computes as a karat-trace/1 folder, by forward hooks on its modules."""

from .capture import Capture, graph_agrees
from .maps import TRANSFORMERS

__all__ = ["Capture", "TRANSFORMERS", "graph_agrees"]
