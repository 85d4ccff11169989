"""The instrument, in rooms by stage; a room imports from those before it.

recording -> capture, finding -> charts -> page -> notebook, notebooks -> tools -> __main__

capture and finding do not import each other: one measures with torch, the other reads recordings without. experiment
and cache serve every room, and so does the package kinetoscope, which reads any trace. tests/lab/test_imports.py has
the contract.
"""
