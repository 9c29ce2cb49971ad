"""The panels as the JSON that Grafana imports.

Invariant: the same panels give the same JSON; every panel asks the data source and the installation that are chosen at the top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tools.dashboard.panels import BLUE, EACH, GREEN, ONE, ROWS, Panel

Json = dict[str, Any]
WIDTH = 24
"""Of Grafana's grid."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> Json:
    """As Grafana imports it."""
    return {
        "uid": "reconciler",
        "title": "reconciler",
        "description": "A GitOps reconciler for NATS JetStream: what is declared, what is live, and what is done about it.",
        "tags": ["nats", "jetstream", "gitops"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [],
        "annotations": {"list": [_leader_changes()]},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1}
    for name, label, inside, every in (
        ("namespace", "Namespace", "", ".*"),
        ("job", "Job", '{namespace=~"$namespace"}', ".+"),
        ("instance", "Instance", f"{{{ONE}}}", ".+"),
    ):
        query = f"label_values(reconciler_build_info{inside}, {name})"
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "includeAll": True,
            "multi": True,
            "allValue": every,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
            "refresh": 2,
            "sort": 1,
        }


def _leader_changes() -> Json:
    return {
        "name": "Another leader",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": BLUE,
        "expr": f"sum by (instance) (changes(reconciler_leader{{{EACH}}}[$__rate_interval])) > 0",
    }


def _panels() -> Iterator[Json]:
    number = top = 0
    for title, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _at(0, top, WIDTH, 1)}
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            number += 1
            yield {"id": number, "gridPos": _at(left, top, panel.width, panel.height), **_panel(panel)}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _at(left: int, top: int, width: int, height: int) -> Json:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.type,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_coloured(panel.colours))},
        "options": _options(panel),
    }


def _targets(panel: Panel) -> Iterator[Json]:
    now = panel.type in ("stat", "bargauge")
    for letter, (expression, said) in zip("ABCDEF", panel.queries.items(), strict=False):
        yield {
            "refId": letter,
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": said or "__auto",
            "instant": now,
            "range": not now,
        }


def _defaults(panel: Panel) -> Json:
    steps = [{"color": GREEN, "value": None}, *({"color": colour, "value": value} for value, colour in panel.steps)]
    words = {
        value: {"text": text, "color": colour, "index": at} for at, (value, (text, colour)) in enumerate(panel.words.items())
    }
    defaults: Json = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.type == "stat" else "palette-classic"},
        "mappings": [{"type": "value", "options": words}] if words else [],
    }
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    if panel.type == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults |= {"min": 0, "custom": {"fillOpacity": 20 if panel.stacked else 5, "stacking": stacking, "showPoints": "never"}}
    return defaults


def _coloured(colours: Mapping[str, str]) -> Iterator[Json]:
    for series, colour in colours.items():
        property_ = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
        yield {"matcher": {"id": "byName", "options": series}, "properties": [property_]}


def _options(panel: Panel) -> Json:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.type == "stat":
        return {"reduceOptions": last, "colorMode": "value", "graphMode": "none", "textMode": "auto", "justifyMode": "auto"}
    if panel.type == "bargauge":
        return {"reduceOptions": last, "displayMode": "basic", "orientation": "horizontal", "showUnfilled": False}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    if panel.type == "state-timeline":
        return {"legend": legend, "showValue": "auto", "mergeValues": True, "rowHeight": 0.8}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
