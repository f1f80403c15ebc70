// Which keys of an experiment change its identity, and how differences are reported.
#include "magister/io/results/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace magister {
namespace identity_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kHead =
    "name: a\nseed: 0\nmodel:\n  path: m\n  dtype: auto\nlayout:\n  devices: auto\n  collectives: reproducible\n";

std::string with_task(const std::string& keys, const std::string& head = kHead) {
  return head + "tasks:\n  - task: judge\n    name: v\n" + keys;
}

TEST(Identity, WhatIsKnownByItsContentHasNoName) {
  const std::vector<std::pair<std::string, std::string>> same = {
      {"    dataset:\n      path: a.jsonl\n", "    dataset:\n      path: /tmp/job-7/a.jsonl\n"},
      {"    dataset:\n      path: a.jsonl\n", "    dataset:\n      path: [\"./a.jsonl\", b.jsonl]\n"},
      {"    dataset:\n      path: hub/x\n      split: test\n", "    dataset:\n      path: x/test.jsonl\n"},
      {"    dataset:\n      sources:\n        - path: a\n          weight: 1.0\n",
       "    dataset:\n      sources:\n        - path: [b, c]\n          weight: 1.0\n"},
      {"    answers: texts\n", "    answers: runs/other/texts.h5\n"},
      {"    panel: [one, two]\n", "    panel: [runs/x/one.h5, \"two\"]\n"},
      {"    guide:\n      model:\n        path: v\n", "    guide:\n      model:\n        task: v\n"},
      {"    model:\n      path: x\n      dtype: f32\n",
       "    model:\n      path: y\n      adapter: z\n      dtype: f32\n"},
      {"    teacher:\n      results: x.h5\n", "    teacher:\n      task: x\n"},
      {"    constraint:\n      json_schema: x.json\n", "    constraint:\n      json_schema: \"{}\"\n"},
      {"    slice: \"0/2\"\n", "    slice: \"1/2\"\n"},
      {"    top_k: 8\n", "    top_k: 8\n    slice: \"1/2\"\n"},
  };
  for (const auto& [one, other] : same) {
    EXPECT_EQ(config_sha256(with_task(one)), config_sha256(with_task(other))) << one << other;
    EXPECT_THAT(differing_keys(with_task(one), with_task(other), {}), ElementsAre()) << one << other;
  }
}

TEST(Identity, WhatDecidesIsTold) {
  struct Case {
    std::string one, other, words;
  };
  const std::vector<Case> cases = {
      {"    top_k: 16\n", "    top_k: 8\n", "tasks.3.top_k is 16 in it and 8 in this run"},
      {"    answers: a\n", "", "tasks.3.answers is a in it and not given in this run"},
      {"    chat:\n      x: 8\n", "    chat:\n      x: \"8\"\n", "tasks.3.chat.x is 8 in it and \"8\" in this run"},
      {"    panel: [one, two]\n", "    panel: [two, one]\n", "tasks.3.panel.0 is one in it and two in this run"},
      {"    dataset:\n      path: a\n      limit: 4\n", "    dataset:\n      path: b\n",
       "tasks.3.dataset.limit is 4 in it and not given in this run"},
      {"    dataset:\n      sources:\n        - path: a\n          weight: 1.0\n",
       "    dataset:\n      sources:\n        - path: a\n          weight: 2.0\n", "sources.0.weight is 1.0"},
      {"    constraint:\n      json_schema: x\n", "    constraint:\n      grammar: x\n",
       "constraint.grammar is not given"},
  };
  for (const auto& [one, other, words] : cases) {
    EXPECT_NE(config_sha256(with_task(one)), config_sha256(with_task(other))) << one << other;
    const auto keys = differing_keys(with_task(one), with_task(other), {.task_key = "tasks.3."});
    ASSERT_FALSE(keys.empty()) << one << other;
    EXPECT_THAT(keys.front(), HasSubstr(words));
  }
}

TEST(Identity, AModelAndASeedOfItsOwnReplaceTheSharedOnes) {
  const std::string other_head =
      "name: b\nseed: 7\nmodel:\n  path: n\n  dtype: f32\nlayout:\n  devices: [1]\n  collectives: reproducible\n";
  const std::string own = "    model:\n      path: x\n      dtype: auto\n    seed: 0\n";
  EXPECT_EQ(config_sha256(with_task(own)), config_sha256(with_task(own, other_head)));
  EXPECT_EQ(config_sha256(with_task(own)), config_sha256(with_task("")));
  EXPECT_THAT(differing_keys(with_task(""), with_task("", other_head), {}),
              ElementsAre("model.dtype is auto in it and f32 in this run", "seed is 0 in it and 7 in this run"));
}

TEST(Identity, AFileOfAnEarlierBuildIsKnownByItsExperiment) {
  const std::string mine = with_task("    dataset:\n      path: ./a.jsonl\n"),
                    theirs = with_task("    dataset:\n      path: a.jsonl\n");
  const Attributes found = {{"experiment", theirs},
                            {"config_sha256", std::string("over the paths, too")},
                            {"dataset_sha256", std::string("aa")}};
  Attributes expected = {
      {"experiment", mine}, {"config_sha256", config_sha256(mine)}, {"dataset_sha256", std::string("aa")}};
  EXPECT_EQ(identity_differences(found, expected), "");
  expected.back().second = std::string("bb");
  EXPECT_EQ(
      identity_differences(found, expected, "tasks.1."),
      "its dataset_sha256 is aa, this run's is bb (tasks.1.dataset.path is a.jsonl in it and ./a.jsonl in this run)");
  expected.front().second = theirs;
  EXPECT_EQ(identity_differences(found, expected),
            "its dataset_sha256 is aa, this run's is bb (tasks.0.dataset.path names other content)");
}

TEST(Identity, FilesBesideAModelAreNamedByTheirKeys) {
  const auto message = [](const std::string& experiment, const std::string& attribute) {
    const Attributes found = {{"experiment", experiment}, {attribute, std::string("aa")}};
    const Attributes expected = {{"experiment", experiment}, {attribute, std::string("bb")}};
    return identity_differences(found, expected);
  };
  const std::string with_files = with_task(
      "    model:\n      path: m\n      adapter: lora\n      chat_template: t.jinja\n      tokenizer: other\n");
  const std::string alone = with_task("    model:\n      path: m\n");
  EXPECT_THAT(message(with_files, "adapter_sha256"), HasSubstr("(tasks.0.model.adapter names other content)"));
  EXPECT_THAT(message(with_files, "chat_template_sha256"),
              HasSubstr("(tasks.0.model.chat_template names other content)"));
  EXPECT_THAT(message(with_files, "tokenizer_sha256"), HasSubstr("(tasks.0.model.tokenizer names other content)"));
  EXPECT_THAT(message(with_files, "model_sha256"),
              HasSubstr("(tasks.0.model.path or tasks.0.model.adapter names other content)"));
  EXPECT_THAT(message(alone, "chat_template_sha256"), HasSubstr("(tasks.0.model.path names other content)"));
  const std::string guided = with_task(
      "    model:\n      path: m\n    guide:\n      model:\n        path: v\n        chat_template: t.jinja\n");
  EXPECT_THAT(message(guided, "chat_template_sha256"), HasSubstr("(tasks.0.model.path names other content)"));
}

TEST(Identity, AnExperimentThatIsNoYamlCountsByItsHash) {
  const Attributes found = {{"experiment", std::string("{{{")}, {"config_sha256", std::string("aa")}};
  const Attributes expected = {{"experiment", with_task("")}, {"config_sha256", std::string("bb")}};
  EXPECT_EQ(identity_differences(found, expected), "its config_sha256 is aa, this run's is bb");
  EXPECT_THAT(identity_differences(found, found), Not(HasSubstr("config_sha256")));
}

}  // namespace identity_test
}  // namespace magister
