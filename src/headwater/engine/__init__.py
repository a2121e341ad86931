"""Joins the rooms below: append, read, publish, checkpoint, recover. Promises live here."""
