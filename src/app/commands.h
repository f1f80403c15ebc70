// The commands, one function each. They return the exit code, the same on every rank, and throw faults.
// Only world rank 0 writes to standard output, by say().
#pragma once

#include <string>
#include <string_view>

#include "magister/app/command_line.h"
#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/stop.h"

namespace magister {

struct Invocation {
  const Communicator& world;
  const CommandLine& line;
  StopSign& stop;
  TaskKinds kinds;
};

// All commands are Collective over the world.
ExitCode run_command(Invocation& call);     // run
ExitCode plan_command(Invocation& call);    // plan
ExitCode doctor_command(Invocation& call);  // doctor
// For these rank 0 does the work and the other ranks wait for it.
ExitCode help_command(Invocation& call);       // help
ExitCode schema_command(Invocation& call);     // schema
ExitCode tokenize_command(Invocation& call);   // tokenize
ExitCode math_command(Invocation& call);       // math
ExitCode info_command(Invocation& call);       // info
ExitCode check_command(Invocation& call);      // check
ExitCode export_command(Invocation& call);     // export
ExitCode merge_command(Invocation& call);      // merge
ExitCode serve_command(Invocation& call);      // serve
ExitCode bench_command(Invocation& call);      // bench
ExitCode summarize_command(Invocation& call);  // summarize
ExitCode history_command(Invocation& call);    // history
ExitCode status_command(Invocation& call);     // status
ExitCode top_command(Invocation& call);        // top

// --version
std::string version_text(bool json);

// Writes to standard output. A reader that has closed the pipe is no fault; a full disk is Error(kInputOutput).
void say(std::string_view text);
void flush_standard_output();

}  // namespace magister
