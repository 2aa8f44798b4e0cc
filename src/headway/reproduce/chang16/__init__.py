"""The experiments of Chang16: what late batch jobs cost under several orders, and how well that is foreseen."""
