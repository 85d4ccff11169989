"""Times and rates out of what the chapter's probes returned."""

from snippets.lab.finding.probed import (
    Keys as Keys,
    entry as entry,
    rate as rate,
    ratio as ratio,
    time as time,
)
