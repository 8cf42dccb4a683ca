"""`paceline up`: manifests in, a running stack out, everything stopped at the end."""
