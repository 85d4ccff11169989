"""Ranks of a job: each trace reduced to a small file, merged in any order, and compared; their traces as one file.

kernels.py       kernels by name and launch shape, with a histogram of their durations
digest.py        a trace reduced: times, kernels and collectives of a rank
digest_files.py  reads and writes digests
merge.py         merges the digests of ranks, in any order and any tree
late.py          the late rank, with what it costs and why it is late
collectives.py   single collectives on a time axis, and the waiting in each group
lanes.py         one step of each rank on one time axis
pipeline.py      stages that send to each other, and the bubble
ranks.py         all of this of a job
texts.py         the comparison in sentences, and as JSON data

joining.py         merges the traces of ranks into one file
rank_files.py      what the files tell before: their ranks, times and damage, and whether they are of one job
one_job.py         whether two files that do not tell their ranks are ranks of one job
different_runs.py  whether ranks were recorded at one time
rank_ids.py        ids with the digits of their rank
process_labels.py  the names and the order of processes in a merged file
joined.py          reads a merged file: the trace of each rank
command.py         the command `merge`
"""
