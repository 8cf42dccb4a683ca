"""`use_beam_search`: one search of the engine for all answers; what a draw is made by means nothing to it."""

from msgspec import structs

from paceline_workers.messages import Started, Submit
from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.requests import GenerateRequest


def searched(submit: Submit, request: GenerateRequest, started: Started) -> list[Submit]:
    """The search once for each answer, under the answer's id; the engine is sent the first. Raises RequestError."""
    if request.candidates > started.slots:
        field = "best_of" if request.best_of else "n"
        words = f"`{field}` asks for {request.candidates} beams; this worker computes at most {started.slots} at once."
        raise invalid(words, field)
    ids = [f"{submit.id}-{choice}" for choice in range(request.n)] if request.n > 1 else [submit.id]
    search = structs.replace(
        submit,
        beams=request.candidates,
        length_penalty=request.length_penalty,
        early_stopping=request.early_stopping,
        answers=ids,
    )
    return [structs.replace(search, id=answer, choice=choice) for choice, answer in enumerate(ids)]
