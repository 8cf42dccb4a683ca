"""What holds for every test: none asserts a duration, so Hypothesis' own limits of time are off.

A fresh clone is slow at first (it builds its tables of characters), and a busy machine always is.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
