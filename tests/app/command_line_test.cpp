// Command lines, right and wrong, and that help, manual and completions know every command and option of the table.
#include "magister/app/command_line.h"

#include <gtest/gtest.h>

#include "app/manual.h"
#include "app/option_table.h"
#include "magister/core/error.h"

namespace magister {
namespace command_line_test {

using Words = std::vector<std::string>;

TEST(CommandLine, ReadsCommandsOptionsAndOverrides) {
  const CommandLine run = parse_command_line(
      {"run", "a.yaml", "seed=-1", "--fresh", "tasks.0.dataset.path=[a, b]", "--max-wall", "01:02:03"});
  EXPECT_EQ(run.command, "run");
  EXPECT_EQ(run.positional("FILE.yaml"), "a.yaml");
  EXPECT_EQ(run.rest("key.path=value"), (Words{"seed=-1", "tasks.0.dataset.path=[a, b]"}));
  EXPECT_TRUE(run.has("--fresh"));
  EXPECT_FALSE(run.has("--print-config"));
  EXPECT_EQ(run.option("--max-wall"), "01:02:03");
  EXPECT_EQ(parse_command_line({"run", "a.yaml", "--max-wall=00:10:00"}).option("--max-wall"), "00:10:00");
  EXPECT_EQ(parse_command_line({"plan", "a.yaml", "--ranks", "8"}).number("--ranks", 1, 1, 100), 8);
  EXPECT_EQ(parse_command_line({"plan", "a.yaml"}).number("--ranks", 3, 1, 100), 3);
  EXPECT_EQ(parse_command_line({"merge", "out.h5", "a.h5", "b.h5"}).rest("PART.h5"), (Words{"a.h5", "b.h5"}));
  EXPECT_EQ(parse_command_line({"bench", "sgemm"}).positional("MODEL"), "");
  EXPECT_TRUE(parse_command_line({"--version", "--json"}).has("--json"));
  EXPECT_EQ(parse_command_line({"--completion", "zsh"}).option("--completion"), "zsh");
  for (const Words& help : {Words{"--help"}, Words{"-h"}}) EXPECT_EQ(parse_command_line(help).command, "--help");
  for (const Words& help : {Words{"run", "--help"}, Words{"run", "a.yaml", "-h"}, Words{"--help", "run"}}) {
    EXPECT_EQ(parse_command_line(help).command, "--help");
    EXPECT_EQ(parse_command_line(help).positional("COMMAND"), "run");
  }
  EXPECT_EQ(parse_command_line({"help"}).positional("KEY"), "");
  EXPECT_EQ(parse_command_line({"help", "judge.combine"}).positional("KEY"), "judge.combine");
  const CommandLine print = parse_command_line({"--print-config", "a.yaml", "seed=2"});
  EXPECT_EQ(print.command, "run");
  EXPECT_TRUE(print.has("--print-config"));
  EXPECT_EQ(print.rest("key.path=value"), Words{"seed=2"});
}

TEST(CommandLine, RefusesInOneMessage) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{}, "no command (known: run, plan,"},
      {{"rn"}, "unknown command rn"},
      {{"server"}, "magister serve queues experiments"},
      {{"train", "a.yaml"}, "write `task: train` in an experiment"},
      {{"run", "a.yaml", "--num-gpus", "2"}, "mpirun -np N magister run"},
      {{"rum", "a.yaml"}, "did you mean run?"},
      {{"experiment.yaml"}, "did you mean magister run experiment.yaml?"},
      {{"exam"}, "write `task: exam` in an experiment"},
      {{"submit", "a.yaml"}, "sbatch jobs/one-node.sbatch FILE.yaml"},
      {{"run_parallel", "a.yaml"}, "mpirun -np N magister run FILE.yaml"},
      {{"tune"}, "`matrix` in an experiment"},
      {{"rm"}, "nothing is deleted here"},
      {{"clean"}, "nothing is deleted here"},
      {{"init"}, "copy an example of configs/"},
      {{"metrics"}, "magister status RUN --json"},
      {{"multigpu"}, "magister doctor shows"},
      {{"run", "a.yaml", "--gpus", "0,1"}, "here that is layout.devices"},
      {{"run", "a.yaml", "--timeout", "30"}, "--max-wall HH:MM:SS"},
      {{"run", "a.yaml", "--name", "x"}, "written without dashes, key.path=value"},
      {{"plan", "a.yaml", "--learning-rate=3"}, "written without dashes, key.path=value"},
      {{"status", "runs/a", "--watch"}, "(known: --json); see magister status --help"},
      {{"\x1B[31m"}, "unknown command \\x1B[31m"},
      {{"--versoin"}, "did you mean --version?"},
      {{"--version", "run"}, "--version takes no run"},
      {{"--completion"}, "needs one shell"},
      {{"--completion", "fish"}, "unknown shell fish"},
      {{"run"}, "FILE.yaml is missing (usage: magister run FILE.yaml"},
      {{"run", "a.yaml", "--frsh"}, "did you mean --fresh?"},
      {{"run", "a.yaml", "--dry-run"}, "magister plan FILE.yaml checks everything"},
      {{"run", "a.yaml", "--resume"}, "continues a stopped run by itself"},
      {{"run", "a.yaml", "--unheard-of=3"}, "unknown option --unheard-of (known: --max-wall"},
      {{"run", "a.yaml", "--max-wall"}, "--max-wall"},
      {{"run", "a.yaml", "--max-wall", "1:00:00", "--max-wall", "2:00:00"}, "--max-wall"},
      {{"plan", "a.yaml", "-n"}, "unknown option -n"},
      {{"info"}, "RESULTS.h5 is missing"},
      {{"info", "a.h5", "b.h5"}, "one argument too many: b.h5"},
      {{"check", "a.h5", "--json"}, "unknown option --json"},
      {{"merge"}, "OUT.h5 is missing"},
      {{"doctor", "here"}, "one argument too many: here"},
  };
  for (const auto& [words, expected] : cases) {
    std::string message;
    try {
      parse_command_line(words);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      message = error.what();
    }
    EXPECT_NE(message.find(expected), std::string::npos) << "expected " << expected << ", found " << message;
    EXPECT_NE(message.find(" ("), std::string::npos) << message;
    EXPECT_NE(message.find("); "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(CommandLine, RefusesNumbersOutOfRange) {
  for (const char* text : {"0", "-1", "x", "8x", "", "1e3", "99999999999999999999"}) {
    EXPECT_THROW(parse_command_line({"plan", "a.yaml", std::string("--ranks=") + text}).number("--ranks", 1, 1, 100),
                 Error)
        << text;
  }
}

TEST(Manual, KnowsTheWholeTable) {
  const std::string help = help_text(), man = man_page(), bash = bash_completion(), zsh = zsh_completion();
  const auto everywhere = [&](const std::string& name) {
    std::string in_roff;
    for (const char c : name) in_roff += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_NE(man.find(in_roff), std::string::npos) << name;
    EXPECT_NE(bash.find(name), std::string::npos) << name;
    EXPECT_NE(zsh.find(name), std::string::npos) << name;
  };
  for (const CommandEntry& command : all_commands()) {
    everywhere(command.name);
    EXPECT_NE(help.find(std::string("  ") + command.name), std::string::npos);
    const std::string own = help_text(command);
    for (const OptionEntry& option : command.options) {
      everywhere(option.name);
      EXPECT_NE(own.find(option.help), std::string::npos);
    }
    for (const PositionalEntry& positional : command.positionals)
      EXPECT_NE(own.find(positional.help), std::string::npos);
  }
  for (const OptionEntry& option : global_options()) {
    everywhere(option.name);
    EXPECT_NE(help.find(option.help), std::string::npos);
  }
}

}  // namespace command_line_test
}  // namespace magister
