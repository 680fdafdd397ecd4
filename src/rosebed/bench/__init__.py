"""`rosebed bench` and `rosebed verify`: how fast a server is, and how right.

Knows servers by their wire alone, Rosebed's own included, so that every one is measured in the same way.
"""
