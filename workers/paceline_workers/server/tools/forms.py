"""Which form a model writes, told by its chat template: what it shows the model is what the model writes."""

from paceline_workers.server.tools.calls import Form
from paceline_workers.server.tools.hermes import Hermes
from paceline_workers.server.tools.llama import Llama
from paceline_workers.server.tools.mistral import Mistral

_FORMS: tuple[Form, ...] = (Hermes(), Mistral(), Llama())


def form_of(template: str) -> Form | None:
    """None for a template that takes no tools, or writes calls in a form that is not known here."""
    if "tools" not in template:
        return None
    return next((form for form in _FORMS if form.marker in template), None)
