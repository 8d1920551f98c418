"""Values and decisions; nothing here waits, reads a clock or talks to the world."""
