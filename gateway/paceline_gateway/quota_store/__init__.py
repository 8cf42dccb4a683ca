"""Quota counters that several gateways share: where they are kept, and who carries asks there and grants back."""
