"""Everything there is of one user: taken away, given out, encrypted anew."""
