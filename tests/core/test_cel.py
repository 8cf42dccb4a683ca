"""Rules judged by their CEL, with the functions that Kubernetes adds to it."""

import subprocess
import sys

from tests.core.objects.corpus import valid

from paceline_core.cel import holds, violations
from paceline_core.objects import read
from paceline_core.objects.service import InferenceService

TRUE = (
    ("self.isSorted()", [5, 25, 25, 100]),
    ("!self.isSorted()", [25, 5]),
    ("[self, 2].sum() == 3", 1),
    ("quantity(self).isLessThan(quantity('1Gi'))", "1023.5Mi"),
    ("!quantity(self).isLessThan(quantity('1G'))", "1Gi"),
    ("!quantity(self).isLessThan(quantity('9999999999999Ti'))", "9999999999999Ti"),
    ("duration(self) > duration('89s')", "1m30s"),
    ("!self.matches('^a$')", "a\n"),
    ("self >= 0.5", 0.5),
)


def test_an_expression_is_true_of_what_the_api_server_finds_it_true_of() -> None:
    assert [cel for cel, value in TRUE if not holds(cel, value)] == []


def test_what_cannot_be_evaluated_does_not_hold() -> None:
    assert not holds("self.absent == 1", {})
    assert not holds("quantity(self).isLessThan(quantity('1Gi'))", "sixteen")
    assert holds("self.absent == 1 || true", {})


def test_a_whole_number_is_a_double_where_the_schema_says_so() -> None:
    document = {**valid()["minimal"]}
    document["spec"] = {**document["spec"], "classes": {"batch": {"availability": 1}}}
    (problem,) = violations(read(InferenceService, document))
    assert problem.field == "spec.classes.batch.availability"


def test_rules_leave_the_interpreter_as_it_was_and_cost_nothing_before_the_first() -> None:
    code = (
        "import sys; import paceline_core.manifests, paceline_core.launch; assert 'celpy' not in sys.modules\n"
        "limit = sys.getrecursionlimit(); from paceline_core.cel import holds; assert holds('true', 1)\n"
        "assert sys.getrecursionlimit() == limit"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
