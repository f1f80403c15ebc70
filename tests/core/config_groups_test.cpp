// Repeated entries against the same experiment written out: the resolved texts are equal. And what cannot be repeated.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/core/error.h"

namespace magister {
namespace config_groups_test {

struct Read {
  std::string resolved, faults;
};

Read read(const std::string& tasks, const std::vector<std::string>& overrides = {}) {
  Read result;
  try {
    ConfigDocument document("name: a\ntasks:\n" + tasks, "e.yaml", overrides);
    document.expand_groups("tasks");
    ConfigNode root = document.root();
    root.text("name");
    for (ConfigNode& task : root.sections("tasks")) {
      task.text("name");
      task.optional_integer("steps", 0);
      task.text("of", "nothing");
      task.optional_texts("paths");
    }
    document.finish();
    result.resolved = document.resolved_yaml();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    result.faults = error.what();
  }
  return result;
}

void expect_same(const std::string& repeated, const std::string& written,
                 const std::vector<std::string>& overrides = {}) {
  const Read found = read(repeated, overrides), expected = read(written);
  EXPECT_EQ(found.faults, "");
  EXPECT_EQ(expected.faults, "");
  EXPECT_EQ(found.resolved, expected.resolved);
}

TEST(ConfigGroups, Rounds) {
  expect_same(
      "- name: value-0\n"
      "- rounds: 2\n"
      "  tasks:\n"
      "  - {name: 'texts-{round}', of: 'value-{round-1}', steps: '{round}'}\n"
      "  - name: value-{round}\n"
      "    of: \"{round+1} {other} {{round}} {{ round }} {\"\n"
      "- name: last\n",
      "- name: value-0\n"
      "- {name: texts-1, of: value-0, steps: 1}\n"
      "- {name: value-1, of: '2 {other} {{round}} {{ round }} {'}\n"
      "- {name: texts-2, of: value-1, steps: 2}\n"
      "- {name: value-2, of: '3 {other} {{round}} {{ round }} {'}\n"
      "- name: last\n");
}

// Names that refer to the previous or next round are different names.
TEST(ConfigGroups, NamesOfNeighbouringRounds) {
  expect_same(
      "- rounds: 2\n"
      "  tasks:\n"
      "  - {name: 'texts-{round+1}', of: 'value-{round}'}\n"
      "  - {name: 'value-{round-1}', of: 'texts-{round}'}\n",
      "- {name: texts-2, of: value-1}\n"
      "- {name: value-0, of: texts-1}\n"
      "- {name: texts-3, of: value-2}\n"
      "- {name: value-1, of: texts-2}\n");
}

TEST(ConfigGroups, TheFirstRoundHasOtherKeys) {
  expect_same(
      "- rounds: 2\n"
      "  tasks:\n"
      "  - name: texts-{round}\n"
      "    of: value-{round-1}\n"
      "    steps: 2\n"
      "    first_round: {of: ~, paths: ['start-{round}'], steps: 7}\n"
      "  - matrix: {k: [a]}\n"
      "    tasks: [{name: '{k}-{round}', of: '{k}', steps: '{round}', first_round: {of: 'none of {k}'}}]\n",
      "- {name: texts-1, steps: 7, paths: [start-1]}\n"
      "- {name: a-1, of: none of a, steps: 1}\n"
      "- {name: texts-2, of: value-1, steps: 2}\n"
      "- {name: a-2, of: a, steps: 2}\n");
}

TEST(ConfigGroups, Matrices) {
  expect_same(
      "- matrix: {seed: [0, 1], kind: [a, \"12\"]}\n"
      "  tasks:\n"
      "  - name: s{seed}-{kind}\n"
      "    steps: \"{seed}\"\n"
      "    of: \"{kind}\"\n"
      "    paths: ['d/{kind}/{seed}', x]\n",
      "- {name: s0-a, steps: 0, of: a, paths: [d/a/0, x]}\n"
      "- {name: s0-12, steps: 0, of: '12', paths: [d/12/0, x]}\n"
      "- {name: s1-a, steps: 1, of: a, paths: [d/a/1, x]}\n"
      "- {name: s1-12, steps: 1, of: '12', paths: [d/12/1, x]}\n");
}

TEST(ConfigGroups, MapsOfAMatrix) {
  expect_same(
      "- matrix:\n"
      "    model: [{name: small, steps: 3}, {steps: 4, name: large}]\n"
      "  tasks:\n"
      "  - {name: 'x-{model.name}', steps: '{model.steps}', of: '{mode}'}\n",
      "- {name: x-small, steps: 3, of: '{mode}'}\n"
      "- {name: x-large, steps: 4, of: '{mode}'}\n");
}

TEST(ConfigGroups, GroupsInGroupsAndOverrides) {
  expect_same(
      "- rounds: 2\n"
      "  tasks:\n"
      "  - matrix: {seed: [\"{round}\", 7]}\n"
      "    tasks:\n"
      "    - name: a-{round}-{seed}\n"
      "      steps: 9\n"
      "      paths: ['{seed}/{round}']\n",
      "- {name: a-1-1, steps: 5, paths: ['1/1']}\n"
      "- {name: a-1-7, steps: 5, paths: ['7/1']}\n"
      "- {name: a-2-2, steps: 5, paths: ['2/2']}\n"
      "- {name: a-2-7, steps: 5, paths: ['7/2']}\n"
      "- {name: a-3-3, steps: 5, paths: ['3/3']}\n"
      "- {name: a-3-7, steps: 5, paths: ['7/3']}\n",
      {"tasks.0.rounds=3", "tasks.0.tasks.0.tasks.0.steps=5"});
}

struct Bad {
  const char* tasks;
  const char* fault;
};

TEST(ConfigGroups, WhatCannotBeRepeated) {
  const Bad cases[] = {
      {"- {rounds: 0, tasks: [{name: 'a{round}'}]}\n", "e.yaml:3:4: tasks.0.rounds: 0 is given"},
      {"- {rounds: -1, tasks: [{name: 'a{round}'}]}\n", "tasks.0.rounds: -1 is given"},
      {"- {rounds: 1000000, tasks: [{name: 'a{round}'}]}\n", "from 1 to 10000"},
      {"- {rounds: two, tasks: [{name: 'a{round}'}]}\n", "tasks.0.rounds: two is given"},
      {"- {rounds: [2], tasks: [{name: 'a{round}'}]}\n", "a list is given"},
      {"- {rounds: 2, task: [{name: 'a{round}'}]}\n", "did you mean tasks?"},
      {"- {rounds: 2, name: x, tasks: [{name: 'a{round}'}]}\n", "tasks.0.name: unknown key of a group"},
      {"- {rounds: 2}\n", "tasks.0.tasks: no list of entries"},
      {"- {rounds: 2, tasks: []}\n", "tasks.0.tasks: no list of entries"},
      {"- {rounds: 2, tasks: [{name: a}]}\n", "e.yaml:3:24: tasks.0.tasks.0.name: a is without {round}"},
      {"- {rounds: 2, tasks: [{steps: 1}]}\n", "tasks.0.tasks.0.name: there is none with {round}"},
      {"- {rounds: 2, matrix: {a: [1]}, tasks: [{name: 'a{round}{a}'}]}\n", "is given together with rounds"},
      {"- {matrix: {}, tasks: [{name: a}]}\n", "no map of names to lists"},
      {"- {matrix: [1], tasks: [{name: a}]}\n", "no map of names to lists"},
      {"- {matrix: {a: []}, tasks: [{name: 'x{a}'}]}\n", "tasks.0.matrix.a: no list of single values"},
      {"- {matrix: {a: 1}, tasks: [{name: 'x{a}'}]}\n", "no list of single values"},
      {"- {matrix: {a: [[1]]}, tasks: [{name: 'x{a}'}]}\n", "no list of single values"},
      {"- {matrix: {a: [1, {b: 2}]}, tasks: [{name: 'x{a}'}]}\n", "with the same keys"},
      {"- {matrix: {a: [{b: 2}, {c: 2}]}, tasks: [{name: 'x{a.b}'}]}\n", "with the same keys"},
      {"- {matrix: {round: [1]}, tasks: [{name: 'x{round}'}]}\n", "and not round"},
      {"- {matrix: {'a b': [1]}, tasks: [{name: 'x{a b}'}]}\n", "no name of a variable"},
      {"- {matrix: {a: [1, 2], b: [3]}, tasks: [{name: 'x{a}'}]}\n", "x{a} is without {b}"},
      {"- {matrix: {a: [1]}, tasks: [{matrix: {a: [2]}, tasks: [{name: 'x{a}'}]}]}\n", "already what a group around"},
      {"- {rounds: 2, tasks: [{rounds: 2, tasks: [{name: 'x{round}'}]}]}\n", "make one group of the two"},
      {"- {rounds: 2, tasks: [{name: 'a{round}', of: 'x{round-2}'}]}\n",
       "tasks.0.tasks.0.of: {round-2} is no variable"},
      {"- {rounds: 2, tasks: [{name: 'a{round}', of: 'x{ round }'}]}\n", "{ round } is no variable"},
      {"- {matrix: {m: [{n: 1}]}, tasks: [{name: 'a{m.n}', paths: [x, '{m.o}']}]}\n",
       "tasks.0.tasks.0.paths.1: {m.o} is no"},
      {"- {matrix: {m: [{n: 1}]}, tasks: [{name: 'a{m.n}', of: '{m}'}]}\n", "{m} is no variable of this group"},
      {"- {rounds: 2, tasks: [{name: 'a{round}', of: x}]}\n", "tasks.0.tasks.0: {round} is used in the name alone"},
      {"- {rounds: 2, tasks: [{name: 'a{round}', of: '{round}', first_round: {}}]}\n",
       "tasks.0.tasks.0.first_round: no map of keys"},
      {"- {rounds: 2, tasks: [{name: 'a{round}', of: '{round}', first_round: ~}]}\n", "first_round: no map of keys"},
      {"- {matrix: {a: [1, 2]}, tasks: [{name: 'x{a}', of: '{a}', first_round: {of: 3}}]}\n",
       "first_round: unknown key"},
      {"- {rounds: 9999, tasks: [{name: 'a{round}', steps: '{round}'}, {name: 'b{round}', steps: '{round}'}]}\n",
       "more than 10000 tasks when all is repeated"},
  };
  for (const Bad& bad : cases) {
    const std::string faults = read(bad.tasks).faults;
    EXPECT_NE(faults.find(bad.fault), std::string::npos) << bad.tasks << "\n" << faults;
    // One fault, however often it would be repeated; "<problem> (<why>); <what to do>".
    EXPECT_EQ(std::count(faults.begin(), faults.end(), '\n'), 0) << faults;
    EXPECT_NE(faults.find("); "), std::string::npos) << faults;
  }
  std::string large = "- matrix: {";
  for (const char* const name : {"a", "b", "c"}) {
    large += std::string(name) + ": [";
    for (int i = 0; i < 100; ++i) large += std::to_string(i) + ", ";
    large += "100], ";
  }
  EXPECT_NE(read(large + "}\n  tasks: [{name: '{a}{b}{c}', of: '{a}{b}{c}'}]\n")
                .faults.find("tasks.0.matrix: more than 10000 combinations"),
            std::string::npos);
}

TEST(ConfigGroups, OtherFaultsKeepTheirPlaces) {
  const std::string faults =
      read("- rounds: 2\n  tasks:\n  - name: a-{round}\n    of: \"{round}\"\n    stps: 3\n").faults;
  EXPECT_NE(faults.find("e.yaml:7:5: tasks.0.stps: unknown key"), std::string::npos) << faults;
  EXPECT_EQ(std::count(faults.begin(), faults.end(), '\n'), 0) << "once: " << faults;
}

}  // namespace config_groups_test
}  // namespace magister
