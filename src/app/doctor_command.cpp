// doctor: checks what a new machine or cluster must do right before a long run: every rank is in its place, links carry
// data intact, and the file system locks between hosts, returns what another rank has just written and keeps adjacent
// bytes.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "magister/core/file_descriptor.h"
#include "magister/core/host_name.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/shared_file_test.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/versions.h"

namespace magister {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// One row per rank, on every rank. Collective over world.
Json ranks_of(const Communicator& world) {
  const Communicator host = world.split_by_host();
  Json mine = {{"rank", world.rank()},
               {"host", host_name()},
               {"local_rank", host.rank()},
               {"cores", usable_cores()},
               {"gpus", Json::array()}};
  for (const GpuDevice& gpu : discover_gpus()) {
    mine["gpus"].push_back({{"name", gpu.name}, {"uuid", gpu.uuid}, {"total_bytes", gpu.total_bytes}});
  }
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) mine["cuda_visible_devices"] = visible;
  Json rows = Json::array();
  for (const std::string& row : world.all_gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace))) {
    rows.push_back(Json::parse(row));
  }
  return rows;
}

// The time of a barrier and the bandwidth to the slowest neighbour in a ring. Collective over world.
Json links_of(const Communicator& world) {
  constexpr int kBarriers = 20;
  constexpr std::size_t kMessageBytes = 8 << 20;
  world.barrier();
  auto begin = Clock::now();
  for (int i = 0; i < kBarriers; ++i) world.barrier();
  const double barrier = world.max(seconds_since(begin) / kBarriers);
  if (world.size() == 1) return {{"barrier_microseconds", barrier * 1e6}};
  std::vector<std::byte> out(kMessageBytes, std::byte{static_cast<unsigned char>(world.rank())}), in(kMessageBytes);
  const int next = (world.rank() + 1) % world.size(), before = (world.rank() + world.size() - 1) % world.size();
  begin = Clock::now();
  // Even ranks send first, so the ring cannot block, also if its size is odd.
  const bool sends_first = world.rank() % 2 == 0;
  if (sends_first) world.send(out.data(), kMessageBytes, next, 1);
  world.receive(in.data(), kMessageBytes, before, 1);
  if (!sends_first) world.send(out.data(), kMessageBytes, next, 1);
  const double slowest = world.max(seconds_since(begin));
  const bool intact = in.front() == std::byte{static_cast<unsigned char>(before)} && in.back() == in.front();
  return {{"barrier_microseconds", barrier * 1e6},
          {"ring_megabytes_per_second", static_cast<double>(kMessageBytes) * 1e-6 / slowest},
          {"intact", world.min(static_cast<std::uint64_t>(intact)) == 1}};
}

// Returns "" if an exclusive lock of rank 0 keeps every rank out and is free again afterwards. Collective over world.
std::string test_lock(const Communicator& world, const std::string& path) {
  std::string problem;
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const FileDescriptor second(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open() || !second.is_open()) problem = fmt::format("open: {}", std::strerror(errno));
  if (problem.empty() && world.rank() == 0 && ::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    problem = fmt::format("flock: {}", std::strerror(errno));
  }
  world.barrier();
  if (problem.empty() && ::flock(second.number(), LOCK_SH | LOCK_NB) == 0) {
    problem = "a second lock was granted in addition to an exclusive one";
  }
  world.barrier();
  if (problem.empty() && world.rank() == 0) ::flock(file.number(), LOCK_UN);
  world.barrier();
  if (problem.empty() && ::flock(second.number(), LOCK_SH | LOCK_NB) != 0) problem = "a released lock was not granted";
  world.barrier();
  return problem;
}

// Each rank writes its block, then reads its neighbour's. megabytes_per_second: of all ranks together. Collective over
// world.
std::string test_write(const Communicator& world, const std::string& path, double& megabytes_per_second) {
  constexpr std::size_t kBlockBytes = 4 << 20;
  std::string problem;
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  std::vector<char> block(kBlockBytes, static_cast<char>('a' + world.rank() % 26));
  const auto begin = Clock::now();
  const auto offset = [](int rank) { return static_cast<off_t>(rank) * static_cast<off_t>(kBlockBytes); };
  if (!file.is_open() ||
      ::pwrite(file.number(), block.data(), kBlockBytes, offset(world.rank())) != static_cast<ssize_t>(kBlockBytes) ||
      ::fdatasync(file.number()) != 0) {
    problem = fmt::format("write: {}", std::strerror(errno));
  }
  world.barrier();
  megabytes_per_second = static_cast<double>(kBlockBytes) * world.size() * 1e-6 / world.max(seconds_since(begin));
  const int neighbour = (world.rank() + 1) % world.size();
  const bool got =
      ::pread(file.number(), block.data(), kBlockBytes, offset(neighbour)) == static_cast<ssize_t>(kBlockBytes);
  const char expected = static_cast<char>('a' + neighbour % 26);
  if (problem.empty() && (!got || block.front() != expected || block.back() != expected)) {
    problem = fmt::format("what rank {} wrote is not what rank {} reads", neighbour, world.rank());
  }
  world.barrier();
  return problem;
}

// Returns the first problem of any rank, "" if there is none. Collective over world.
std::string any_problem(const Communicator& world, const std::string& mine) {
  const std::vector<std::string> all = world.all_gather(mine);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].empty()) return fmt::format("rank {}: {}", i, all[i]);
  }
  return "";
}

Json files_of(const Communicator& world, const std::string& directory) {
  std::string path;
  std::string problem;
  if (world.rank() == 0) {
    path = fmt::format("{}/.magister-doctor-{}", directory, ::getpid());
    const FileDescriptor made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!made.is_open()) problem = std::strerror(errno);
  }
  world.broadcast(path, 0);
  problem = any_problem(world, problem);
  Json result = {{"directory", directory}};
  if (!problem.empty()) {
    result["create"] = problem;
    return result;
  }
  const std::string lock = any_problem(world, test_lock(world, path));
  double rate = 0;
  std::string write = any_problem(world, test_write(world, path, rate));
  if (write.empty()) write = any_problem(world, test_adjacent_bytes(world, path));
  world.barrier();
  if (world.rank() == 0) ::unlink(path.c_str());
  result["create"] = "ok";
  result["lock"] = lock.empty() ? "ok" : lock;
  result["write"] = write.empty() ? "ok" : write;
  result["write_megabytes_per_second"] = rate;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (!error) result["free_bytes"] = space.available;
  return result;
}

// The likely reason why no rank sees a GPU, as far as this process can find it; "" if one does.
std::string no_gpu_note(const Json& report) {
  bool hidden = false;
  for (const Json& rank : report["ranks"]) {
    if (!rank["gpus"].empty()) return "";
    hidden = hidden || rank.contains("cuda_visible_devices");
  }
  const Json& libraries = report["libraries"];
  if (libraries.value("cuda_runtime", "none") == "none")
    return "no GPUs: this program was built without GPU code; MAGISTER_CUDA=ON scripts/build.sh builds it with it\n";
  if (libraries.value("cuda_driver", "none") == "none")
    return "no GPUs: no NVIDIA driver answers here (login nodes mostly have none); start it in a job that has GPUs, or "
           "try nvidia-smi\n";
  return hidden ? "no GPUs: there is a driver, and CUDA_VISIBLE_DEVICES leaves none of its GPUs; unset or change it\n"
                : "no GPUs: there is a driver, and it shows none; ask the scheduler for them (sbatch --gres=gpu:4), or "
                  "try nvidia-smi\n";
}

std::string text_of(const Json& report) {
  std::string out = fmt::format("magister {}\n", report["version"].get<std::string>());
  for (const auto& [name, version] : report["libraries"].items()) {
    out += fmt::format("  {:<16} {}\n", name, printable(version.get<std::string>(), 300));
  }
  out += fmt::format("{:<6} {:<24} {:<6} {:<6} {}\n", "rank", "host", "local", "cores", "GPUs");
  for (const Json& rank : report["ranks"]) {
    std::string gpus;
    for (const Json& gpu : rank["gpus"]) {
      gpus += fmt::format("{}{} ({})", gpus.empty() ? "" : ", ", printable(gpu["name"].get<std::string>(), 60),
                          format_bytes(gpu["total_bytes"].get<std::uint64_t>()));
    }
    if (gpus.empty()) gpus = "none";
    if (rank.contains("cuda_visible_devices"))
      gpus +=
          fmt::format(" (CUDA_VISIBLE_DEVICES={})", printable(rank["cuda_visible_devices"].get<std::string>(), 200));
    out += fmt::format("{:<6} {:<24} {:<6} {:<6} {}\n", rank["rank"].get<int>(),
                       printable(rank["host"].get<std::string>(), 60), rank["local_rank"].get<int>(),
                       rank["cores"].get<int>(), gpus);
  }
  out += no_gpu_note(report);
  const Json& links = report["links"];
  out += fmt::format("links: barrier {:.1f} us", links["barrier_microseconds"].get<double>());
  if (links.contains("ring_megabytes_per_second")) {
    out += fmt::format(", ring of all ranks {:.0f} MB/s at the slowest place, data {}",
                       links["ring_megabytes_per_second"].get<double>(),
                       links["intact"].get<bool>() ? "intact" : "DAMAGED");
  }
  const Json& files = report["files"];
  out += fmt::format("\nfiles in {}: create {}", printable(files["directory"].get<std::string>()),
                     files["create"].get<std::string>());
  if (files.contains("lock")) {
    out += fmt::format(", lock {}, write {} ({:.0f} MB/s), {} free", files["lock"].get<std::string>(),
                       files["write"].get<std::string>(), files["write_megabytes_per_second"].get<double>(),
                       format_bytes(files.value("free_bytes", std::uint64_t{0})));
  }
  return out + "\n";
}

}  // namespace

ExitCode doctor_command(Invocation& call) {
  const Communicator& world = call.world;
  refuse_singleton_launch(world.size());
  Json report = {{"version", MAGISTER_VERSION}, {"libraries", Json::object()}, {"ranks", ranks_of(world)}};
  for (const auto& [name, version] : library_versions()) report["libraries"][name] = version;
  report["links"] = links_of(world);
  report["files"] = files_of(world, call.line.option("--directory", "."));
  const Json& files = report["files"];
  const bool links_good = report["links"].value("intact", true);
  const bool files_good = files["create"] == "ok" && files["lock"] == "ok" && files["write"] == "ok";
  report["ok"] = links_good && files_good;
  if (world.rank() == 0) {
    say(call.line.has("--json") ? report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text_of(report));
  }
  if (!links_good) {
    fail(ExitCode::kInputOutput,
         "data sent from rank to rank arrived damaged (no result could be trusted); check the "
         "network and the MPI installation");
  }
  if (!files_good) {
    const std::string what = files["create"] != "ok" ? "create: " + files["create"].get<std::string>()
                             : files["lock"] != "ok" ? "lock: " + files["lock"].get<std::string>()
                                                     : "write: " + files["write"].get<std::string>();
    fail(ExitCode::kInputOutput,
         "{}: {} (a results file there would not be safe); choose a directory on a file system "
         "that all hosts share and that supports locks",
         printable(files["directory"].get<std::string>()), printable(what));
  }
  return ExitCode::kDone;
}

std::string version_text(bool json) {
  if (json) {
    Json report = {{"magister", MAGISTER_VERSION}, {"build_type", MAGISTER_BUILD_TYPE}};
    for (const auto& [name, version] : library_versions()) report[name] = version;
    return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  std::string out = fmt::format("magister {} ({})\n", MAGISTER_VERSION, MAGISTER_BUILD_TYPE);
  for (const auto& [name, version] : library_versions())
    out += fmt::format("  {:<16} {}\n", name, printable(version, 300));
  return out;
}

}  // namespace magister
