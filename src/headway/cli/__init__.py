"""The command `headway`: a module a family of commands, loaded when one of them is used."""
