"""Profiling PyTorch: the code behind the book, in the order in which data flows.

<chapter>/model.py, kernels.py   the subject: plain PyTorch and Triton, free of anything of ours
<chapter>/experiments.py         what is measured: names, shapes, callables
lab/experiment.py                the vocabulary of the line above                              (leaf)
lab/capture.py                   runs experiments in processes of their own, saves recordings  (needs a GPU)
  lab/worker.py                  one such process: profile, check, time
  lab/timing.py                  timing in turns, by CUDA graphs
  lab/hardware.py                ceilings: copy and matmul                                     (leaf)
lab/recording.py                 docs/recordings/: all that crosses; nothing below imports torch
  lab/archive.py                 recordings on their way home
lab/kineto.py                    a profiler's file -> a trace
  lab/trace.py                   a trace as typed data, and the questions one asks of it       (leaf)
lab/summary.py                   any trace in one table
lab/figures.py                   one number of a recording, `#!fig` in prose
lab/claims.py                    sentence + predicate -> verdict
lab/html.py                      tables that escape what is not ours                           (leaf)
lab/tables.py                    kernels of a step, operators, variants, sweeps
<chapter>/findings.py            what a page shows: tables, FIGURES and CLAIMS
lab/page.py                      provenance, verdicts and the frame of a fence
lab/__main__.py                  the command line
"""
