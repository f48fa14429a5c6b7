"""The tests of Strands, which nobody here wrote, run with our parts put in."""
