"""Profiling PyTorch: the code behind the book, in the order in which data flows.

    <chapter>/model.py, kernels.py   the subject: plain PyTorch and Triton, free of anything of ours
    <chapter>/experiments.py         what is measured: names, shapes, callables
    lab/experiment.py                the vocabulary of the line above
    lab/capture.py                   runs experiments in processes of their own   (needs a GPU: `make record`)
      lab/worker.py                  one such process: profile, check, time
      lab/timing.py                  interleaved timing by CUDA graphs            (leaf)
      lab/hardware.py                ceilings: copy and matmul                    (leaf)
    lab/recording.py                 docs/recordings/: the only thing that crosses; nothing below imports torch
    lab/trace.py                     Kineto JSON -> typed data                    (leaf)
    lab/summary.py                   a trace in one table
    lab/figures.py                   one number of a recording, as `#!fig` in prose
    lab/claims.py                    sentence + predicate -> verdict
    lab/tables.py                    HTML tables                                  (leaf)
    <chapter>/findings.py            what a page shows: tables and CLAIMS
    lab/page.py                      provenance, banners and the frame of a fence
    lab/__main__.py                  the command line
"""
