"""Model descriptions of other tools, one module per format."""
