"""The engine for Dask: each worker of a cluster is a node. Needs `headway[dask]`."""
