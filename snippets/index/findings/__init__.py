"""The content of the home page.

waits.py     one forward pass at one token and at 8,192, on one time scale: who waits for whom
symptoms.py  the tree What do you see?, with a picture from a recording at each leaf
cards.py     draws it as cards, and sheet.py on one sheet of paper; bar_rows.py has the smallest pictures
card.py      the picture of a shared link
"""

from snippets.index.findings import symptoms, waits

PARTS = (waits, symptoms)
