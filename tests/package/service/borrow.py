"""Borrows 32 MiB and returns them. A minute is longer than any broker takes to be followed by the next."""
import gpumem

with gpumem.Session.connect(label="borrow", timeout=60.0) as session, session.open_slice() as memory:
    memory.grow(32 * gpumem.MIB, wait=60.0)
