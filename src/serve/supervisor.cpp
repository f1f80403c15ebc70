#include "serve/supervisor.h"

#include <chrono>
#include <filesystem>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "serve/batch_system.h"
#include "serve/durable_file.h"
#include "serve/job_process.h"

namespace magister {
namespace {

constexpr auto kRound = std::chrono::milliseconds(100);
constexpr int kRoundsBetweenQuestions = 100;
constexpr int kRoundsBetweenStops = 100;  // a job that has not begun yet does not hear the first signal

}  // namespace

JobFiles::JobFiles(const std::string& root, std::int64_t id)
    : folder(fmt::format("{}/jobs/{}", root, id)),
      experiment(folder + "/experiment.yaml"),
      log(folder + "/log.txt"),
      lock(folder + "/lock"),
      script(folder + "/job.sh"),
      slurm_job(folder + "/slurm_job") {}

Supervisor::Supervisor(const ServeOptions& options, JobStore& store)
    : options_(options), store_(store), thread_([this] { watch(); }) {}

Supervisor::~Supervisor() {
  ended_ = true;
  thread_.join();
}

void Supervisor::watch() {
  while (!ended_) {
    try {
      for (const JobState state : {JobState::kRunning, JobState::kStopping})
        for (const Job& job : store_.in_state(state, 1000)) look_at(job);
      start_next();
    } catch (const std::exception& error) {
      log_error("the queue of jobs: {}", error.what());
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    std::this_thread::sleep_for(kRound);
  }
}

void Supervisor::look_at(const Job& job) {
  if (job.state == JobState::kStopping) pass_on_stop(job);
  const auto child = children_.find(job.id);
  if (child == children_.end()) {
    const JobFiles files(options_.root, job.id);
    if (lock_is_held(files.lock) || runs_elsewhere(job, files)) return;
    // Its process ended while no service watched. Started again, it ends at once if it was done.
    if (job.state == JobState::kStopping)
      store_.end(job.id, JobState::kCancelled, std::nullopt, "");
    else
      store_.put_back(job.id);
    return;
  }
  const std::optional<int> code = ended_child(child->second);
  if (!code) return;
  children_.erase(child);
  stops_passed_.erase(job.id);
  const bool stopped = *code == static_cast<int>(ExitCode::kStopped);
  const JobState state = *code == 0                                    ? JobState::kDone
                         : stopped || job.state == JobState::kStopping ? JobState::kCancelled
                                                                       : JobState::kFailed;
  store_.end(job.id, state, *code, state == JobState::kFailed ? "the end of its log says why" : "");
}

// A job of Slurm goes on when the process that waits for it has ended with the machine.
bool Supervisor::runs_elsewhere(const Job& job, const JobFiles& files) {
  if (options_.sbatch.empty()) return false;
  int& rounds = slurm_asked_[job.id];
  if (rounds++ % kRoundsBetweenQuestions != 0) return true;
  if (batch_job_is_alive(batch_job(files.slurm_job))) return true;
  slurm_asked_.erase(job.id);
  return false;
}

void Supervisor::pass_on_stop(const Job& job) {
  if (job.pid <= 0) return;
  const JobFiles files(options_.root, job.id);
  if (stops_passed_[job.id]++ % kRoundsBetweenStops != 0) return;
  if (!options_.sbatch.empty()) return ask_batch_job_to_stop(batch_job(files.slurm_job));
  if (!lock_is_held(files.lock)) return;
  ask_process_to_stop(static_cast<pid_t>(job.pid));
}

void Supervisor::start_next() {
  const std::int64_t busy = store_.count(JobState::kRunning) + store_.count(JobState::kStopping);
  for (const Job& job : store_.in_state(JobState::kQueued, std::max<std::int64_t>(0, options_.jobs_at_once - busy)))
    if (store_.begin(job.id)) start(job);
}

void Supervisor::start(const Job& job) {
  try {
    const JobFiles files(options_.root, job.id);
    std::filesystem::create_directories(files.folder);
    write_durably(files.experiment, job.experiment);
    std::vector<std::string> words = options_.launcher;
    words.insert(words.end(), {options_.program, "run", files.experiment, "output.directory=" + files.folder});
    JobCommand command{words, options_.root, files.log, files.log, files.lock};
    if (!options_.sbatch.empty()) {
      write_durably(files.script, batch_script(words));
      std::error_code ignored;
      std::filesystem::remove(files.slurm_job, ignored);
      command.words = submission(options_.sbatch, files.script, files.log, options_.root);
      command.output = files.slurm_job;
    }
    const pid_t pid = start_job(command);
    children_[job.id] = pid;
    store_.set_pid(job.id, pid);
  } catch (const Error& error) {
    store_.end(job.id, JobState::kFailed, std::nullopt, error.what());
  }
}

}  // namespace magister
