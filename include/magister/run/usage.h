// Statistics of the ranks and GPUs of a run, and their energy, over a time such as that of a task. They go to
// run.jsonl, never into results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "magister/monitor/monitor.h"
#include "magister/parallel/communicator.h"
#include "magister/run/progress.h"

namespace magister {

// {"ranks": [{"rank", "host", and Monitor::Watch::summary() of the rank}], "energy_joules"}. The energy is that of all
// GPUs, each whole GPU once; absent if no GPU reports it. job_rank: this rank's number in the job. Collective over
// world.
nlohmann::ordered_json gathered_usage(const Communicator& world, std::uint64_t job_rank, const Monitor::Watch& watch);

// Adds "joules_per_million_tokens", if energy and tokens are known. tokens: read and written in the same time.
void add_energy_of_tokens(nlohmann::ordered_json& usage, std::uint64_t tokens);

// "cores a rank 0.97 (0.90 to 1.00), GPU use 93 % (80 to 99), 412 W a GPU (390 to 431), energy 1.2e+06 J, 3.1e+04 J per
// million tokens": means over ranks or GPUs, then the smallest 5th and the largest 95th percentile among them. Empty if
// nothing was measured.
std::string describe_usage(const nlohmann::ordered_json& usage);

// Shows progress to the monitor. rank_tokens(): rank and tokens done, called from show().
std::unique_ptr<ProgressReader> monitor_progress_reader(
    Monitor& monitor, std::function<std::vector<std::pair<std::uint64_t, std::uint64_t>>()> rank_tokens);

}  // namespace magister
