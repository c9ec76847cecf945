"""Carries a plan out: ports, spawn, health, event loop, guardian, run directory.

Import from the modules. This file stays empty of imports so that the guardian starts in milliseconds.
"""
