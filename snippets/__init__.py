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
lab/html.py                      tables that escape what is not ours                           (leaf)
lab/kernel_names.py              a kernel's name -> what it says; shown in place
  lab/kernel_grammar.json, .py   the grammar of names, which the page's script reads, too       (leaf)
lab/summary.py, viewer.py        any trace in one table; any trace in Perfetto
lab/figures.py                   one number of a recording, `#!fig` in prose
lab/claims.py                    sentence + predicate -> verdict
lab/work.py, rates.py            FLOPs and bytes of a kernel where its trace tells; beside the ceilings
lab/tables.py                    kernels of a step, operators, variants, sweeps
  lab/averages.py                what `key_averages()` computes
lab/diff.py                      two steps aligned, kernel by kernel
lab/timeline.py                  a step as a drawing
  lab/lanes.py                   what stands in it, and where                                  (leaf)
lab/charts.py                    kernel time, CPU and GPU, bytes, roofline, regimes
  lab/bars.py, curves.py         how they are drawn
  lab/svg.py                     a figure of matplotlib -> SVG that is part of the page        (leaf)
lab/page.py                      provenance, verdicts, tabs by device, the frame of a fence
lab/guesses.py                   a question with a measured answer
lab/ledger.py                    every claim on every device
lab/glossary.py, contents.py     the words; the chapters, as nav orders them
lab/unsearched.py                keeps shown code out of the search index
<chapter>/findings.py            what a page shows: tables, FIGURES and CLAIMS; a package where there is much
lab/notebook.py                  what a reader calls in a cell of a lab                        (runs torch when called)
  lab/cells.py                   runs a lab's cells in a process of their own
  lab/labs.py                    docs/labs/: recorded, stale or missing
lab/scaffold.py, .txt            a new chapter, with a working example
lab/preview.py                   the site while it is written
lab/__main__.py                  the command line
"""
