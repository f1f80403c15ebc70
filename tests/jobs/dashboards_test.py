"""jobs/grafana.json and jobs/alerts.yaml name only metrics that the program exposes, with their labels and units.

The names are read from the tables of src/monitor. promtool, where it is installed (Debian: prometheus), checks the rules, runs
jobs/alerts_test.yaml and reads every query of the dashboard.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(os.environ["MAGISTER_SOURCE_DIR"])
PROMTOOL = shutil.which("promtool")
# The labels that prometheus_text() writes, by scope; a rate of a rank comes with the progress of a task, which names no host.
LABELS = {"rank": {"run", "rank", "host"}, "gpu": {"run", "rank", "host", "gpu", "uuid"}, "task": {"run", "task"}}
LABELS_OF_RATE = {"run", "rank", "task"}
# Units in which a quantity may be exposed, by a word of its name.
QUANTITIES = {"power": {"watts"}, "energy": {"joules_total"}, "temperature": {"celsius"}, "clock": {"hertz"}, "utilization": {"ratio"}, "busy": {"ratio"},
              "memory": {"bytes", "ratio", "hertz"}, "cpu": {"seconds_total", "ratio"}}
WITHOUT_UNIT = re.compile(r"magister_(gpu_(throttled_\w+|processes|xid_errors_total|ecc_uncorrected_errors_total)|task_(units|tokens|units_done|tokens_done|written_tokens|loss))")
# Units of Grafana for the base units; "rate": for what grows by one of them in each second.
GRAFANA = {"watts": "watt", "celsius": "celsius", "bytes": "bytes", "hertz": "hertz", "ratio": "percentunit", "seconds": "s", "joules_total": "joule",
           "bytes_per_second": "Bps", "tokens_per_second": "suffix: tokens/s"}
GRAFANA_RATE = {"bytes_total": "Bps", "joules_total": "watt", "seconds_total": "suffix: cores"}
WORDS = {"and", "or", "unless", "bool", "offset"}
GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)"


def exposed():
    """-> {name: whether it is a counter}, from the tables and from the scopes that prometheus_names() gives them."""
    tables = (ROOT / "src/monitor/metrics.cpp").read_text(encoding="utf-8")
    writer = (ROOT / "src/monitor/prometheus.cpp").read_text(encoding="utf-8")
    table_of = dict(re.findall(r"(\w+_metrics)\(\) \{ return (k\w+); \}", tables))
    names = {}
    for scope, function, table in re.findall(r'\badd\("(\w+)", (?:(\w+_metrics)\(\)|(k\w+))\);', writer):
        (body,) = re.findall(rf"constexpr Metric {table or table_of[function]}\[\] = \{{\n(.*?)\n\}};", tables + writer, re.DOTALL)
        entries = re.findall(r'\{"(\w+)", (true|false),', body)
        assert len(entries) == body.count("{"), f"an entry of {table or function} that this test does not read"
        names.update({f"magister_{scope}_{name}": counter == "true" for name, counter in entries})
    return names


def without_labels(query):
    return re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]", " ", re.sub(r'"(?:\\.|[^"\\])*"', '""', query))


def metrics_in(query):
    """Every name of a query that is neither a function, nor a word of PromQL, nor a label."""
    bare = re.sub(GROUPING, " ", without_labels(query))
    return [name for name in re.findall(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?![\w:])(?!\s*\()", bare) if name not in WORDS]


def labels_in(query):
    """-> (labels by which the query selects or joins, labels that its result has, or None for all)."""
    matchers = " ".join(re.findall(r"\{([^{}]*)\}", re.sub(r'"(?:\\.|[^"\\])*"', '""', query)))
    groups = re.findall(GROUPING, without_labels(query))
    used = set(re.findall(r"\w+(?=\s*(?:=|!))", matchers)) | {label for group in groups for label in re.findall(r"\w+", group)}
    aggregated = re.search(r"\b(?:sum|min|max|avg|count) by \(([^()]*)\)", query)
    return used, set(re.findall(r"\w+", aggregated.group(1))) if aggregated else None


def labels_of(metric):
    return LABELS_OF_RATE if metric == "magister_rank_tokens_per_second" else LABELS[metric.split("_")[1]]


def unit_of(metric, units):
    """The longest of the units with which the name ends; None: none of them."""
    return max((unit for unit in units if metric.endswith("_" + unit)), key=len, default=None)


def panel_unit(query):
    """The unit of Grafana that fits the values of a query; None where the metric has none."""
    found = metrics_in(query)
    if query.startswith("count "):
        return None
    if re.fullmatch(r"magister_[^-+*/]* / magister_[^-+*/]*", without_labels(query)):
        return "percentunit" if unit_of(found[0], GRAFANA) == unit_of(found[1], GRAFANA) else None
    rated = re.search(r"\b(rate|irate)\(", query)
    unit = unit_of(found[0], GRAFANA_RATE if rated else GRAFANA)
    return (GRAFANA_RATE if rated else GRAFANA).get(unit)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout + done.stderr


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.exposed = exposed()
        cls.dashboard = json.loads((ROOT / "jobs/grafana.json").read_text(encoding="utf-8"))
        cls.panels = [panel for panel in cls.dashboard["panels"] if panel["type"] != "row"]
        rules = yaml.safe_load((ROOT / "jobs/alerts.yaml").read_text(encoding="utf-8"))
        cls.rules = [rule for group in rules["groups"] for rule in group["rules"]]
        cls.tests = yaml.safe_load((ROOT / "jobs/alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
        cls.shown = [(panel, target) for panel in cls.panels for target in panel["targets"]]
        # A variable's query is label_values(SELECTOR, LABEL), which only Grafana knows.
        lists = [re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"]) for one in cls.dashboard["templating"]["list"] if one["type"] == "query"]
        cls.variables = [(found.group(1), found.group(2)) for found in lists]
        cls.queries = [(panel["title"], target["expr"]) for panel, target in cls.shown] + [(rule["alert"], rule["expr"]) for rule in cls.rules]
        cls.queries += [("variable " + label, selector) for selector, label in cls.variables]

    def test_the_tables_are_read(self):
        self.assertGreaterEqual(len(self.exposed), 35)
        self.assertLessEqual({"magister_rank_read_bytes_total", "magister_rank_sample_timestamp_seconds", "magister_gpu_power_watts", "magister_task_loss"}, set(self.exposed))
        written = set(re.findall(r'\{"(\w+)", (?:run|rank|rank_text|state_text)', (ROOT / "src/monitor/prometheus.cpp").read_text(encoding="utf-8")))
        written |= set(re.findall(r'emplace_back\("(\w+)"', (ROOT / "src/monitor/prometheus.cpp").read_text(encoding="utf-8")))
        self.assertEqual(written, set().union(*LABELS.values()), "labels")

    def test_exposed_names_are_in_base_units(self):
        units = set().union(*QUANTITIES.values()) | {"seconds", "bytes_total", "bytes_per_second", "tokens_per_second"}
        for name, counter in self.exposed.items():
            self.assertEqual(counter, name.endswith("_total"), name)
            if WITHOUT_UNIT.fullmatch(name):
                continue
            self.assertIsNotNone(unit_of(name, units), f"{name} ends in no base unit")
            for word in set(name.split("_")) & set(QUANTITIES):
                self.assertIsNotNone(unit_of(name, QUANTITIES[word]), f"{name} is a {word}, which has the units {QUANTITIES[word]}")

    def test_queries_name_exposed_metrics(self):
        self.assertGreater(len(self.queries), 40)
        for where, query in self.queries:
            self.assertTrue(metrics_in(query), f"{where}: {query}")
            self.assertEqual([name for name in metrics_in(query) if name not in self.exposed], [], f"{where}: {query}")
        for test in self.tests:
            for one in test["input_series"]:
                self.assertEqual([name for name in metrics_in(one["series"]) if name not in self.exposed], [], test["name"])

    def test_a_name_that_is_not_exposed_is_noticed(self):
        for where, query in self.queries:
            for name in metrics_in(query):
                for other in (name + "_x", name.replace("magister_", ""), "node_" + name):
                    self.assertIn(other, metrics_in(re.sub(rf"\b{name}\b", other, query)), where)

    def test_queries_use_labels_that_are_written(self):
        for where, query in self.queries:
            common = set.intersection(*(labels_of(name) for name in metrics_in(query)))
            self.assertLessEqual(labels_in(query)[0], common, f"{where}: {query}")
        texts = [(panel["title"], target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) for panel, target in self.shown]
        texts += [(rule["alert"], rule["expr"], re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) for rule in self.rules]
        texts += [("variable " + label, selector, [label]) for selector, label in self.variables]
        for where, query, named in texts:
            result = labels_in(query)[1]
            self.assertLessEqual(set(named), labels_of(metrics_in(query)[0]) if result is None else result, f"{where}: {query}")

    def test_counters_are_read_as_rates(self):
        over_time = r"(rate|irate|increase|last_over_time)\(\s*$"
        for where, query in self.queries:
            for found in re.finditer(r"magister_\w+", query):
                before = re.search(over_time, query[:found.start()])
                if self.exposed.get(found.group()):
                    # The number of Xid errors since the run began is shown as it is.
                    self.assertTrue(before or "_xid_" in found.group(), f"{where}: {query}")
                elif found.group() in self.exposed:
                    self.assertTrue(before is None or before.group(1) == "last_over_time", f"{where}: {query}")

    def test_panels_have_the_units_of_their_metrics(self):
        for panel, target in self.shown:
            shown, expected = panel["fieldConfig"]["defaults"]["unit"], panel_unit(target["expr"])
            self.assertEqual(shown, expected or "short", f"{panel['title']}: {target['expr']}")
            self.assertNotRegex(without_labels(target["expr"]), r"[*/]\s*[\d.]", f"{panel['title']}: the dashboard scales nothing, Grafana does")

    def test_the_dashboard_can_be_imported(self):
        ids = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        cells = [(panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y) for panel in self.dashboard["panels"] for x in range(panel["gridPos"]["w"]) for y in range(panel["gridPos"]["h"])]
        self.assertEqual(len(cells), len(set(cells)), "panels cover each other")
        self.assertLess(max(x for x, _ in cells), 24)
        known = {"$" + one["name"] for one in self.dashboard["templating"]["list"]} | {"$__rate_interval", "$__range"}
        for where, query in self.queries:
            self.assertLessEqual(set(re.findall(r"\$\w+", query)), known, where)
        self.assertEqual({panel["datasource"]["uid"] for panel in self.panels}, {"${datasource}"})

    def test_every_alert_is_tested(self):
        cases = [case for test in self.tests for case in test["alert_rule_test"]]
        names = {rule["alert"] for rule in self.rules}
        self.assertEqual(len(names), len(self.rules))
        self.assertEqual({case["alertname"] for case in cases if case.get("exp_alerts")}, names, "alerts that fire")
        self.assertEqual({case["alertname"] for case in cases if not case.get("exp_alerts")}, names, "alerts that do not")


@unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian: apt-get install prometheus)")
class Promtool(unittest.TestCase):
    def test_check_rules(self):
        code, output = run(PROMTOOL, "check", "rules", str(ROOT / "jobs/alerts.yaml"))
        self.assertEqual(code, 0, output)
        self.assertIn("SUCCESS", output)

    def test_rules_fire_when_they_should(self):
        code, output = run(PROMTOOL, "test", "rules", str(ROOT / "jobs/alerts_test.yaml"))
        self.assertEqual(code, 0, output)
        self.assertIn("SUCCESS", output)

    def test_queries_of_the_dashboard_are_promql(self):
        """As rules of their own, in which numbers replace Grafana's variables."""
        panels = json.loads((ROOT / "jobs/grafana.json").read_text(encoding="utf-8"))["panels"]
        queries = [target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1h") for panel in panels for target in panel.get("targets", [])]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "dashboard.yaml"
            rules = [{"record": f"query:number_{i}", "expr": query} for i, query in enumerate(queries)]
            path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
            code, output = run(PROMTOOL, "check", "rules", str(path))
        self.assertEqual(code, 0, output)
        self.assertIn(f"SUCCESS: {len(queries)} rules found", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
