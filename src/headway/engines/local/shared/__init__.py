"""What driver, agent and slot share: messages, terms, and where things are on the disk."""
