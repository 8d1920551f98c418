"""Adapters: one real thing each, behind an extra; none knows another."""
