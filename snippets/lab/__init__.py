"""The instrument, in rooms by stage; a room imports from those before it.

trace -> recording -> capture, finding -> drawing -> page -> notebook, notebooks -> tools -> __main__
trace -> diagnosis -> report (over drawing) -> __main__

capture and finding do not import each other: one measures with torch, the other reads recordings without. experiment,
cells, html, cache, files and terminal serve every room.
"""
