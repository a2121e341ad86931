"""A machine as a picture, as Mermaid text or as SVG.

`picture` says what is drawn, from a definition, and writes the Mermaid; `layout` gives states and
arrows their coordinates; `svg` writes the shapes. Nothing here knows the owner's tables: a
drawing of thousands of states takes seconds and runs on a thread of its own.
"""
