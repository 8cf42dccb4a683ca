"""`paceline up`: manifests in, a running stack out, everything down at the end."""
