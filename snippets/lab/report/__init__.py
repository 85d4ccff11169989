"""The command `report`: any trace as one HTML file with a diagnosis; several as a comparison.

Imports diagnosis, drawing, trace and html; never recording, finding or page.
"""
