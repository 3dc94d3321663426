"""One module per noun: what each method does. Handlers decide and answer; effects do the work."""
