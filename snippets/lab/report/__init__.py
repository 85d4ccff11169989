"""The command `report`: any trace as one HTML file with a diagnosis; several as a comparison.

digest.py        a trace reduced to a small file: times, kernels and collectives of a rank
digest_files.py  reads and writes digests
merge.py         merges the digests of ranks, in any order and any tree
ranks.py         ranks side by side: exposed communication, who arrives last
noise.py         whether two samples of times differ beyond their noise
compare.py       what changed between two traces or two groups of runs
comparison.py    ... as sections of a report and as JSON
several.py       which of the two several files are; writes digests
diff.py          the command `diff`, with its gate
part.py          a section of a report

Imports diagnosis, drawing, trace and html; never recording, finding or page.
"""
