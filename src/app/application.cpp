// One place decides what happens to a fault. Ranks that fail together meet in a barrier on a communicator of their own
// and speak once; a rank that waits there longer than kPatience is alone with its fault and ends the job.
#include "magister/app/application.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>

#include "app/commands.h"
#include "app/manual.h"
#include "app/option_table.h"
#include "magister/app/command_line.h"
#include "magister/core/error.h"
#include "magister/core/log.h"

namespace magister {

namespace {

// Long enough for ranks that read the same bad file at the same time, short against the 5 s in which a job must end.
constexpr std::chrono::milliseconds kPatience{700};

ExitCode execute(Invocation& call) {
  const CommandLine& line = call.line;
  const bool speaks = call.world.rank() == 0;
  const auto print = [speaks](const std::string& text) {
    if (speaks) say(text);
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

struct Fault {
  ExitCode code;
  std::string message;  // one line, or one a line for an experiment's faults
};

Fault fault_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return {own->code(), own->what()};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return {ExitCode::kInternal,
            "out of memory (the work cannot go on); use a smaller unit_tokens, more ranks per group, or "
            "a machine with more memory"};
  }
  return {ExitCode::kInternal,
          fmt::format("{} (the program did not expect it); report it with the command that you gave",
                      printable(error.what(), 2000))};
}

struct PatienceIsOver {};

// True when every rank of the world came here within kPatience.
bool all_failed(const Communicator& failed) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    failed.wait_for_all([&] {
      if (std::chrono::steady_clock::now() - begin > kPatience) throw PatienceIsOver{};
    });
  } catch (const PatienceIsOver&) {
    return false;
  }
  return true;
}

// Says the fault, on the whole world's behalf when all have one, and returns the exit code; does not return otherwise.
int settle(const Communicator& failed, const Fault& fault) {
  const int code = static_cast<int>(fault.code);
  if (!all_failed(failed)) {
    log_local(LogLevel::kError, "{}", fault.message);
    abort_job(code);
  }
  const std::vector<std::string> messages = failed.all_gather(fault.message);
  const std::vector<std::uint64_t> codes = failed.all_gather(static_cast<std::uint64_t>(code));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (std::find(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(i), messages[i]) !=
        messages.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;  // said already
    }
    const bool shared = std::count(messages.begin(), messages.end(), messages[i]) == failed.size();
    log_error("{}{}", shared ? "" : fmt::format("rank {} of {}: ", i, failed.size()), messages[i]);
  }
  return static_cast<int>(codes[0]);
}

StopSign* handled_sign = nullptr;  // the only way from a signal handler to the program

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
    return settle(failed, fault_of(error));
  }
}

}  // namespace magister
