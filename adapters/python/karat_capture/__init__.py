"""Records what a Python engine computes as a karat-trace/1 folder, by forward hooks on its modules."""

from .capture import Capture, graph_agrees
from .maps import DEEPSEEK, TRANSFORMERS, TransformersPages

__all__ = ["Capture", "DEEPSEEK", "TRANSFORMERS", "TransformersPages", "graph_agrees"]
