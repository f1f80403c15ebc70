// One job for each way in which a job can end; endings_test.py starts them and judges.
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/unit_tickets.h"
#include "magister/parallel/watchdog.h"
#include "parallel/shared_counters.h"

namespace {

bool finalize_hangs = false;

}  // namespace

// In place of the library's, which has been seen to hang, once in thousands of jobs.
extern "C" int MPI_Finalize() {
  while (finalize_hangs) pause();
  return PMPI_Finalize();
}

namespace magister {
namespace {

using namespace std::chrono_literals;

bool last(const Communicator& world) { return world.rank() == world.size() - 1; }

void clean(const Communicator& world) { std::printf("rank %d of %d\n", world.rank(), world.size()); }

// Open MPI's event thread may call into a component that MPI_Finalize() has closed.
bool components_are_there() {
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  return text.find("/mca_pmix_") != std::string::npos;
}

void hang_at_the_end(const Communicator& world) {
  clean(world);
  finalize_hangs = true;
}

void abort_in_main(const Communicator& world) {
  if (last(world)) abort_job(74);
  world.barrier();  // the others are inside MPI
}

void abort_in_thread(const Communicator& world) {
  if (last(world)) std::thread([] { abort_job(65); }).detach();
  world.barrier();
  std::this_thread::sleep_for(60s);
}

// Two threads find a fault at the same moment.
void abort_twice(const Communicator& world) {
  if (last(world)) {
    std::thread([] { abort_job(78); }).detach();
    abort_job(78);
  }
  world.barrier();
}

void throw_past_session(const Communicator& world) {
  if (last(world)) fail(ExitCode::kData, "this rank's own error");
  world.barrier();
}

void die(const Communicator& world) {
  if (last(world)) raise(SIGKILL);
  world.wait_for_all();
}

void stall(const Communicator& world) {
  Watchdog watchdog(20s, world.rank() == 0);
  if (last(world)) {
    watchdog.enter("compute", 5, 300ms);
    std::this_thread::sleep_for(60s);
  }
  watchdog.enter("waiting for the other ranks");
  world.wait_for_all();
}

// A stopped peer reports nothing; the rank that waits for it ends the job.
void stop_a_peer(const Communicator& world) {
  Watchdog watchdog(20s, world.rank() == 0);
  if (last(world)) raise(SIGSTOP);
  watchdog.enter("waiting for the other ranks", -1, 500ms);
  world.wait_for_all();
}

// The same where the stopped one is whom the others ask for signs of life.
void stop_who_is_asked(const Communicator& world) {
  UnitTickets tickets(world, UnitSet::all(1), Schedule::kDynamic, world.rank(), world.size());
  Watchdog watchdog(500ms, world.rank() == 0);
  if (world.rank() == 0) raise(SIGSTOP);
  watchdog.wait_for_others("waiting for the other ranks", -1, [&] { return tickets.heartbeat(); });
  world.wait_for_all();
}

// The scheduler suspends the job and resumes it: that is no fault of the job. The time asleep counts as one check, a
// second at most.
void suspend_all(const Communicator& world) {
  Watchdog watchdog(20s, false);
  watchdog.enter("compute", 1, 4s);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    kill(parent, SIGSTOP);
    std::this_thread::sleep_for(5s);
    kill(parent, SIGCONT);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  std::this_thread::sleep_for(200ms);
  std::printf("awake\n");
}

void draw_tickets(const Communicator& world) {
  const Watchdog watchdog(1min, world.rank() == 0);
  {
    const auto counters = make_shared_counters(world, 1);
    if (world.rank() == 0) std::printf("counters: %s\n", counters->kind().c_str());
    counters->free();
  }
  UnitTickets tickets(world, UnitSet::all(200), Schedule::kDynamic, world.rank(), world.size());
  std::uint64_t sum = 0;
  while (const auto unit = tickets.claim()) {
    sum += *unit + 1;
    tickets.report_done(3);
  }
  world.wait_for_all();
  const auto progress = tickets.progress();
  const bool right = world.sum(sum) == 200 * 201 / 2 && progress.units_done == 200 && progress.tokens_done == 600;
  tickets.free();
  if (world.rank() == 0) std::printf("tickets: %s\n", right ? "right" : "wrong");
}

int live(int argc, char** argv) {
  const std::map<std::string, std::function<void(const Communicator&)>> endings = {{"clean", clean},
                                                                                   {"components", clean},
                                                                                   {"hang", hang_at_the_end},
                                                                                   {"abort", abort_in_main},
                                                                                   {"abort-thread", abort_in_thread},
                                                                                   {"abort-twice", abort_twice},
                                                                                   {"throw", throw_past_session},
                                                                                   {"die", die},
                                                                                   {"stall", stall},
                                                                                   {"stop", stop_a_peer},
                                                                                   {"stop-asked", stop_who_is_asked},
                                                                                   {"suspend", suspend_all},
                                                                                   {"tickets", draw_tickets}};
  if (std::strcmp(argv[1], "abort-before") == 0) abort_job(78);
  MpiSession session(&argc, &argv);
  const Communicator world = Communicator::world();
  set_log_identity(world.rank(), world.size());
  endings.at(argv[1])(world);
  session.ends_with(finalize_hangs ? 75 : 0);
  return 0;
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  int code = 0;
  try {
    code = magister::live(argc, argv);
  } catch (const magister::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  if (std::strcmp(argv[1], "components") == 0) std::printf("%d\n", magister::components_are_there());
  if (std::strcmp(argv[1], "abort-before") != 0)
    magister::abort_job(code == 0 ? 0 : 70);  // after MPI_Finalize: just an exit
  return code;
}
