"""Measuring, with torch, on a GPU: nothing else writes recordings.

selection.py     the experiments that need recording, and the GPU for them
recorder.py      records them batch by batch: order, report, saving
supervisor.py    one worker process, or one for each rank: their events, their deadline, their end
worker.py        that process: profiles or times groups of experiments
ranks.py         the processes of several ranks, and functions that run in all of them
agreement.py     what the ranks agree on, over gloo
rank_traces.py   the ranks' traces, taken together and merged
merging.py       one recording from the parts of several processes
checking.py      a subject and its result, compared with the reference
profiling.py     torch.profiler around an experiment's steps
loops.py         a training loop: profiled, checked, timed in blocks
timing.py        GPU and CPU times, variants interleaved
steady.py        GPU times, power and energy of each variant alone
ceilings.py      a copy and bare matmuls, in the same turns
gpu.py           NVML: clocks, power, energy, throttle reasons, other processes
instruments.py   the functions that a probe gets
lock.py          one recorder per GPU, and no other program on it
cpu.py           model, cores, governor, virtual or not
environment.py   machine, versions, clocks
profile_here.py  one experiment profiled and checked in this process
trial.py         experiments run once: what fails here, without a recording

Imports recording, trace and experiment. Recordings are measured by the code of this room: a change must
raise PROTOCOL in recording/fingerprint.py, or state that the measurement is the same
(tests/lab/capture/test_protocol.py).
"""
