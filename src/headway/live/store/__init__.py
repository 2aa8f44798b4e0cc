"""The journal and all that shares its file: its tables, checks of it, backups, and what is read from it later."""
