// The path from the command line to the exit code.
#include "magister/app/application.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>

#include "app/commands.h"
#include "app/faults.h"
#include "app/manual.h"
#include "app/option_table.h"
#include "magister/app/command_line.h"
#include "magister/core/error.h"
#include "magister/core/log.h"

namespace magister {

namespace {

ExitCode execute(Invocation& call) {
  const CommandLine& line = call.line;
  const bool is_root = call.world.rank() == 0;
  const auto print = [is_root](const std::string& text) {
    if (is_root) say(text);
    return ExitCode::kDone;
  };
  if (line.command == "--help") {
    const CommandEntry* const command = find_command(line.positional("COMMAND").c_str());
    return print(command == nullptr ? help_text() : help_text(*command));
  }
  if (line.command == "--version") return print(version_text(line.has("--json")));
  if (line.command == "--man") return print(man_page());
  if (line.command == "--completion") {
    return print(line.option("--completion") == "zsh" ? zsh_completion() : bash_completion());
  }
  if (const CommandEntry* const command = find_command(line.command.c_str())) return command->function(call);
  fail(ExitCode::kInternal, "command {} has no function (the table and the program disagree); report it", line.command);
}

StopSign* handled_sign = nullptr;  // signal handlers have no other access to the program

extern "C" void raise_stop_sign(int number) { handled_sign->signal.store(number, std::memory_order_relaxed); }

}  // namespace

void install_signal_handlers(StopSign& stop) {
  static_assert(std::atomic<int>::is_always_lock_free);
  handled_sign = &stop;
  struct sigaction action{};
  action.sa_handler = raise_stop_sign;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int run_application(const Communicator& world, const std::vector<std::string>& arguments, StopSign& stop,
                    TaskKinds kinds) {
  set_log_identity(world.rank(), world.size());
  const Communicator failed = world.duplicate();
  try {
    const CommandLine line = parse_command_line(arguments);
    Invocation call{world, line, stop, kinds};
    const ExitCode code = execute(call);
    if (world.rank() == 0) flush_standard_output();
    return static_cast<int>(code);
  } catch (const std::exception& error) {
    return static_cast<int>(settle(failed, fault_of(error)));
  }
}

}  // namespace magister
