"""`python -m headwater.testing.torture`."""

from __future__ import annotations

import sys

from headwater.testing.torture.program import main

sys.exit(main())
