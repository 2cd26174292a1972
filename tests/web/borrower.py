"""Borrows memory under names of its choice: borrower.py COMMAND LABEL BYTES. It holds it until its input ends."""
import ctypes
import sys

import gpumem

PR_SET_NAME = 15

command, label, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(command.encode()), 0, 0, 0)
with gpumem.Session.connect(label=label, timeout=20) as session:
    piece = session.open_slice(label=label)
    print("asks", flush=True)
    piece.grow(size, wait=3600)
    print("holds", flush=True)
    sys.stdin.read()
