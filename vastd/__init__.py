"""The daemon that owns every GPU instance one person rents on Vast.ai."""
