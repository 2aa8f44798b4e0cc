"""Experiments of the papers, run again: samples of a log, sweeps over load, published numbers beside ours."""
