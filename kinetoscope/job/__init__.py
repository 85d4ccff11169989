"""Ranks of one job: their collectives matched, who waits for whom, and what a late rank costs.

Used for the ranks merged in one trace, and for traces or digests of each rank.

matching.py    matches the calls of a collective over the ranks
windows.py     the steps of a rank on its GPU, and why it is idle
rank_parts.py  the parts of a rank's step: own work, transfer, waiting, idle time
compared.py    ranks compared: who waits for whom
lateness.py    which ranks are late, and what they cost
"""
