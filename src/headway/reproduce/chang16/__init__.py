"""The experiments of Chang16: what late batch jobs cost and how well that is foreseen; services beside them."""
