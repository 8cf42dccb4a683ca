"""Faults that last: one line in the log when one begins or turns into another, one when it ends, none in between."""

import logging


class FaultLog:
    """`standing` holds the faults there are now, by subject, with their reasons."""

    def __init__(self, log: logging.Logger) -> None:
        self.standing: dict[str, str] = {}
        self._log = log

    def begin(self, subject: str, reason: str, **more: str) -> bool:
        """Something is wrong with `subject`; True if that is news."""
        if self.standing.get(subject) == reason:
            return False
        self.standing[subject] = reason
        self._log.warning("%s", subject, extra={"reason": reason, **more})
        return True

    def end(self, subject: str) -> None:
        """All is well with `subject`."""
        if self.standing.pop(subject, None) is not None:
            self._log.info("no longer: %s", subject)
