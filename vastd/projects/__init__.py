"""The files that other tools read in a project: the state file and the workflows' formats."""
