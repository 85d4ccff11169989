"""Ranks of a job: each trace reduced to a small file, merged in any order, and compared.

digest.py        a trace reduced: times, kernels and collectives of a rank
digest_files.py  reads and writes digests
merge.py         merges the digests of ranks, in any order and any tree
ranks.py         ranks side by side: exposed communication, who arrives last
"""
