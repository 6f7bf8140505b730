"""Hugging Face ``config.json``: which class reads it, what that class fixes, and the model that comes out."""
