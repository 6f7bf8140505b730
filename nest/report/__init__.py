"""What people and programs read: figures, JSON documents, and text for a terminal."""
