"""A board as Grafana's JSON, through grafana-foundation-sdk.

Ids come from titles, so that a new panel changes no link to the others. The place of a panel follows from its row
alone; the SDK's own layout takes the corner (0, 0) for "nowhere" and is not used. Known hole: no Grafana renders this
in a test.
"""

import json
import zlib
from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_builder
from grafana_foundation_sdk.builders import dashboard as builder
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.dashboards.panels import VARIABLES, Annotation, Board, Panel, Query, Row, View

PanelBuilder = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel

TAG = "paceline"
WIDTH = 24
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
_SERIES_OF = {  # a series that every service, and every class, has
    "pisvc_namespace": "paceline_requests_in_flight",
    "pisvc": "paceline_requests_in_flight",
    "class": "paceline_slo_objective_ratio",
}


def render(board: Board) -> str:
    """The board's JSON, the same for the same board."""
    made = (
        builder.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .link(_link())
    )
    for variable in _variables(board):
        made = made.with_variable(variable)
    for annotation in board.annotations:
        made = made.annotation(_annotation(annotation))
    whole = made.build()
    whole.panels = list(_placed(board))
    return json.dumps(whole, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def panel_id(title: str) -> int:
    """A panel's or row's id: stable while its title is."""
    return zlib.crc32(title.encode()) >> 1 or 1


def _link() -> builder.DashboardLink:
    return (
        builder.DashboardLink("paceline")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .include_vars(True)
        .keep_time(True)
    )


def _variables(board: Board) -> Iterator[builder.DatasourceVariable | builder.QueryVariable]:
    yield builder.DatasourceVariable("datasource").label("Data source").type("prometheus")
    given: list[str] = []
    for label in board.variables:
        narrowed = ", ".join(f'{other}=~"{VARIABLES[other]}"' for other in given)
        series = f"{_SERIES_OF[label]}{{{narrowed}}}" if narrowed else _SERIES_OF[label]
        name = VARIABLES[label].removeprefix("$")
        yield _choice(name, f"label_values({series}, {label})")
        given.append(label)


def _choice(name: str, query: str) -> builder.QueryVariable:
    return (
        builder.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _annotation(mark: Annotation) -> builder.AnnotationQuery:
    return (
        builder.AnnotationQuery()
        .name(mark.name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(mark.colour)
        .expr(mark.expr)
        .step("60s")
        .title_format(mark.title)
        .text_format(mark.title)
        .tag_keys("pisvc")
    )


def _placed(board: Board) -> Iterator[dashboard.Panel | dashboard.RowPanel]:
    top = 0
    for row in board.rows:
        yield builder.Row(row.title).id(panel_id(f"row {row.title}")).grid_pos(_place(0, top, WIDTH, 1)).build()
        top += 1
        for panel, x, y in _laid_out(row):
            yield _panel(panel).grid_pos(_place(x, top + y, panel.width, panel.height)).build()
        top += max(y + panel.height for panel, _, y in _laid_out(row))


def _laid_out(row: Row) -> Iterator[tuple[Panel, int, int]]:
    """Panels from left to right, in lines as high as their highest."""
    x, y, tallest = 0, 0, 0
    for panel in row.panels:
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        yield panel, x, y
        x, tallest = x + panel.width, max(tallest, panel.height)


def _place(x: int, y: int, w: int, h: int) -> dashboard.GridPos:
    return dashboard.GridPos(x=x, y=y, w=w, h=h)


def _panel(panel: Panel) -> PanelBuilder:
    made = (
        _view(panel)
        .id(panel_id(panel.title))
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .no_value(panel.empty)
        .mappings([_nan_as(panel.empty)])
    )
    if panel.steps:
        first, *rest = panel.steps
        steps = [dashboard.Threshold(value=None, color=first[1]), *(dashboard.Threshold(*step) for step in rest)]
        made = made.thresholds(builder.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps))
    for index, query in enumerate(panel.queries):
        made = made.with_target(_target(panel, query, chr(ord("A") + index)))
    return made


def _view(panel: Panel) -> PanelBuilder:
    match panel.view:
        case View.STAT:
            return stat.Panel().reduce_options(common_builder.ReduceDataOptions().calcs(["lastNotNull"]))
        case View.TABLE:
            return _table(panel)
        case View.HEATMAP:
            return heatmap.Panel().calculate(False)
        case View.LINES | View.STACK:
            return _lines(panel)


def _lines(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .min(0)
        .line_width(1)
        .show_points(common.VisibilityMode.NEVER)
        .fill_opacity(60 if panel.view is View.STACK else 0)
        .override_by_regexp("/^(promised|page|cap) /", _dashed())
    )
    if panel.view is View.STACK:
        made = made.stacking(common_builder.StackingConfig().mode(common.StackingMode.NORMAL))
    return made


def _dashed() -> list[dashboard.DynamicConfigValue]:
    style = {"fill": "dash", "dash": [8, 6]}
    return [
        dashboard.DynamicConfigValue("custom.lineStyle", style),
        dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "red"}),
    ]


def _table(panel: Panel) -> table.Panel:
    names = {f"Value #{chr(ord('A') + index)}": query.legend for index, query in enumerate(panel.queries)}
    renamed = {**names, "pisvc_namespace": "namespace", "pisvc": "service"}
    made = table.Panel().with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    organised = {"excludeByName": {"Time": True}, "renameByName": renamed}
    made = made.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organised))
    share = [dashboard.DynamicConfigValue("unit", "percentunit")]
    return made.override_by_regexp("/^(objective|bad .*)$/", share)


def _nan_as(text: str) -> dashboard.ValueMapping:
    result = dashboard.ValueMappingResult(text=text)
    options = dashboard.DashboardSpecialValueMapOptions(match=dashboard.SpecialValueMatch.NA_N, result=result)
    return dashboard.SpecialValueMap(options=options)


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().datasource(SOURCE).expr(query.expr).legend_format(query.legend).ref_id(ref)
    match panel.view:
        case View.TABLE:
            return made.instant().format(PromQueryFormat.TABLE)
        case View.HEATMAP:
            return made.range().format(PromQueryFormat.HEATMAP)
        case _:
            return made.range()
