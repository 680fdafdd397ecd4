"""Triton twins of the reference operations, for CUDA. Each file holds kernels of one kind and their launchers.

Every kernel can be launched with programmatic dependent launch (`PDL`): it starts while its predecessor drains, touches
only weights until `wait`, and lets its own successor start at once. NOTE: every program must reach `wait`, or a
successor of the successor could read what is not yet written.
"""
