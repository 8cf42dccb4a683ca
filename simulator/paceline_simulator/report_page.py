def report_page(comparison: object, about: str) -> str:
    return ""
