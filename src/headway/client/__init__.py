"""Submit jobs to a running Headway and get their results: `Client`, `Job`, `Task`, waiters, an executor."""
