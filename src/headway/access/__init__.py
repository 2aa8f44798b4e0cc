"""Who may use a server, and how much of it: tokens, quotas, and what was refused."""
