"""A simulation of processes that share one conversation: whatever may happen between two calls of a store does.

Everything runs in one thread and by one clock. Each call of a store is a point where any other process may go on, also the
same process with other work, and where a process may die or stay for a long time. Which does is drawn from a seed, so that a
seed that fails does so again, and shrinks to a short list of steps.

``core``: what is simulated, behind a small interface. ``schedule``: whose turn it is. ``stores``: stores that are called one
step at a time. ``writer``: background work. ``world``: the processes and what may happen to them. ``drawing``: which of that
may happen when. ``promises``: what must hold in the end. ``runs``: seeds, their sets of options, and shrinking.
"""
