"""Borrows all that can be had, and returns nothing until its input ends, whoever asks for it."""
import sys

import gpumem

with gpumem.Session.connect(label="hog") as session, session.open_slice() as memory:
    memory.grow(memory.limit, least=64 * gpumem.MIB)
    print("holds", flush=True)
    sys.stdin.read()
