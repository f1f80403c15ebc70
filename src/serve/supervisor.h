// The supervisor: starts queued jobs, notices their ends, and passes on requests to stop. One thread.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "magister/serve/service.h"
#include "serve/job_store.h"

namespace magister {

// The files of a job, below <root>/jobs/<id>.
struct JobFiles {
  JobFiles(const std::string& root, std::int64_t id);
  std::string folder, experiment, log, lock;
  std::string script, slurm_job;  // with sbatch: the script, and the number of Slurm's job
};

class Supervisor {
 public:
  // Takes up what an earlier service left: jobs that still run, and jobs whose process ended with it, which are started
  // again (the same command continues a run). Keeps references.
  Supervisor(const ServeOptions& options, JobStore& store);
  ~Supervisor();  // ends the thread; jobs go on

 private:
  void watch();
  void look_at(const Job& job);
  void pass_on_stop(const Job& job);
  void start_next();
  void start(const Job& job);
  bool runs_elsewhere(const Job& job, const JobFiles& files);

  const ServeOptions& options_;
  JobStore& store_;
  std::map<std::int64_t, pid_t> children_;    // jobs that this service started
  std::map<std::int64_t, int> stops_passed_;  // rounds since a job was told to stop
  std::map<std::int64_t, int> slurm_asked_;   // rounds since Slurm was asked about a job of an earlier service
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace magister
