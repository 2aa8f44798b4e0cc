"""The command `headway`: a module for each family of commands, loaded when one of them is used."""
