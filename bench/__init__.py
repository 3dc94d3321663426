"""What vastd costs, each figure beside its peer or its limit in the same run (`python -m bench`)."""
