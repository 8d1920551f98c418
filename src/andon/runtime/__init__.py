"""The acting half: everything here performs what `core` decides."""
