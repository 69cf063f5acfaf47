"""``casspec bench decode``: tokens per second of every way to decode one model (native.md).

Each contender is a process of its own that is stopped while another one has its turn; turns go
round, so that a machine that changes its pace changes it for all alike.
"""
