"""A model as OpenVINO compiles it for the CPU: the same modules, traced once, and run without torch.

Its threads share out what there is to do as they come by (TBB), so that none waits for one that is not scheduled, and
between two operations none has to be woken. torch's wait for each other, asleep or spinning: the log has the times.
"""
