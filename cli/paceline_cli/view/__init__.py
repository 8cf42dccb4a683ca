"""What a person sees of a running stack: one screen, plain lines, or JSON."""
