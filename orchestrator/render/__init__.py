"""Findings, plans and runs to text and JSON: the only formatting in the project."""
