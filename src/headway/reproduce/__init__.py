"""The experiments of the papers, repeated: samples of a log, sweeps over load, published numbers beside ours."""
