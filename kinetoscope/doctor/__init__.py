"""The command `doctor`: find what is wrong with a trace, or with this machine.

command.py         the command
checks.py          a result of a check, and how results are printed
trace_checks.py    what is missing or wrong in a trace, with step_checks.py
machine_checks.py  whether this machine can record
machine_facts.py   what the checks ask a machine; torch_probe.py profiles in a process of its own
"""
