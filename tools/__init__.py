"""Scripts that make files of this repository; nothing here ships in the wheel."""
