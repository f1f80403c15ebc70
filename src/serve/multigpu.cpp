// The paths under /multigpu: those of a training service for PyTorch, mapped to jobs, to the devices of this machine
// and to what the program itself says. An answer has no number that was not measured or computed.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <sstream>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "serve/durable_file.h"
#include "serve/own_program.h"
#include "serve/routes.h"
#include "serve/server.h"
#include "serve/supervisor.h"
#include "serve/training_request.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char *kGpuConfig = "gpu_config", *kTrainingConfig = "training_config";

Json setting(Service& service, const char* name, const Json& usual) {
  const std::optional<std::string> text = service.store().setting(name);
  return text ? Json::parse(*text) : usual;
}
Json gpu_config(Service& service) { return setting(service, kGpuConfig, usual_gpu_config()); }
Json training_config(Service& service) { return setting(service, kTrainingConfig, usual_training_config()); }

Json job_counts(Service& service) {
  Json counts = Json::object();
  for (const JobState state : all_states()) counts[name_of(state)] = service.store().count(state);
  return counts;
}

Json reason(const std::string& text) { return text.empty() ? Json() : Json(text); }

Reply gpu_health(Service& service, const Call&) {
  return {.json = {{"status", "healthy"},
                   {"seconds", service.seconds()},
                   {"available_gpus", service.devices().num_gpus()},
                   {"without_gpus_because", reason(service.devices().problem())},
                   {"jobs", job_counts(service)}}};
}

Reply config_reply(Service& service) {
  const Json config = gpu_config(service);
  return {.json = {{"config", config},
                   {"training", training_config(service)},
                   {"notes", notes_of(config, service.devices().num_gpus())}}};
}

Reply show_config(Service& service, const Call&) { return config_reply(service); }

Reply change(Service& service, const Call& call, const char* name, Json config) {
  const std::string fault = change_config(config, Json::parse(call.body, nullptr, false));
  if (!fault.empty()) return fault_reply(422, fault);
  service.store().set_setting(name, config.dump());
  return config_reply(service);
}

Reply set_config(Service& service, const Call& call) { return change(service, call, kGpuConfig, gpu_config(service)); }

Reply set_training_config(Service& service, const Call& call) {
  return change(service, call, kTrainingConfig, training_config(service));
}

// A request can choose the GPUs and their share for later trainings. The memory of a job is freed by its end alone.
Reply manage(Service& service, const Call& call) {
  const Json body = Json::parse(call.body, nullptr, false);
  const Json keys = body.is_object() ? body : Json::object();
  for (const auto& [key, value] : keys.items()) {
    if (key != "gpu_ids" && key != "memory_fraction" && key != "use_multi_gpu")
      return fault_reply(422,
                         fmt::format("{} manages nothing here: gpu_ids, memory_fraction and use_multi_gpu of later "
                                     "trainings can be set; the memory of a job is freed by its end (cancel it)",
                                     printable(key, 60)));
  }
  return set_config(service, call);
}

Json stats_of(Service& service) {
  return {{"available_gpus", service.devices().num_gpus()},
          {"without_gpus_because", reason(service.devices().problem())},
          {"gpu_info", service.devices().gpus()},
          {"host", service.devices().host()},
          {"jobs", job_counts(service)}};
}

Reply stats(Service& service, const Call&) { return {.json = stats_of(service)}; }

Reply gpu_stats(Service& service, const Call& call) {
  Json gpus = service.devices().gpus();
  const std::size_t index = std::stoull(call.places.at(0));
  if (index < gpus.size()) return {.json = std::move(gpus[index])};
  return fault_reply(404, fmt::format("this machine has {} GPUs{}{}", gpus.size(), gpus.empty() ? ": " : "",
                                      service.devices().problem()));
}

Reply resources(Service& service, const Call&) {
  Json json = stats_of(service);
  std::error_code error;
  const fs::space_info space = fs::space(service.options().root, error);
  json["disk_free_bytes"] = error ? Json() : Json(space.available);
  json["jobs_at_once"] = service.options().jobs_at_once;
  json["config"] = gpu_config(service);
  return {.json = std::move(json)};
}

// The folder of the job's run.
std::string run_folder(Service& service, const Job& job) {
  return JobFiles(service.options().root, job.id).folder + "/" + job.name;
}

// The answer of the program as JSON; null with a fault in `why`.
Json json_of(const ProgramAnswer& answer, std::string& why) {
  if (answer.start_error != 0 || answer.took_too_long) {
    why = "the program gave no answer in time; try again";
    return nullptr;
  }
  Json json = Json::parse(answer.output, nullptr, false);
  if (!json.is_discarded()) return json;
  why = answer.errors.empty() ? fmt::format("the program ended with {}", answer.exit_code) : answer.errors;
  return nullptr;
}

Reply performance(Service& service, const Call&) {
  constexpr std::int64_t kMostJobs = 4;
  std::vector<Job> jobs = service.store().in_state(JobState::kRunning, kMostJobs);
  if (jobs.empty()) {
    for (const Job& job : service.store().newest(0, 100))
      if (job.starts > 0 && jobs.empty()) jobs.push_back(job);
  }
  Json all = Json::array();
  for (const Job& job : jobs) {
    std::string why;
    Json status = json_of(ask_own_program(service.options(), {"status", run_folder(service, job), "--json"}), why);
    all.push_back({{"job", job.id}, {"state", name_of(job.state)}, {"status", status}, {"why_not", reason(why)}});
  }
  return {.json = {{"jobs", std::move(all)}}};
}

// The starts of the newest jobs, the newest job first.
Reply history(Service& service, const Call&) {
  constexpr std::int64_t kLookedThrough = 1000;
  constexpr std::size_t kMostJobs = 10;
  Json all = Json::array();
  for (const Job& job : service.store().newest(0, kLookedThrough)) {
    if (job.starts == 0) continue;
    if (all.size() == kMostJobs) break;
    std::string why;
    const Json runs = json_of(ask_own_program(service.options(), {"history", run_folder(service, job), "--json"}), why);
    all.push_back({{"job", job.id},
                   {"state", name_of(job.state)},
                   {"starts", runs.is_object() && runs.contains("starts") ? runs["starts"] : Json::array()},
                   {"why_not", reason(why)}});
  }
  return {.json = {{"history", std::move(all)}}};
}

Reply test_gpus(Service& service, const Call&) {
  std::string why;
  Json json = json_of(ask_own_program(service.options(), {"doctor", "--json"}, service.options().launcher), why);
  if (!why.empty()) return fault_reply(503, why);
  return {.json = {{"available_gpus", service.devices().num_gpus()},
                   {"without_gpus_because", reason(service.devices().problem())},
                   {"test", std::move(json)}}};
}

// The memory plan of a job, line by line: what fits, and the sums that say so.
Reply recommendations(Service& service, const Call& call) {
  const std::optional<std::string> asked = call.query("job"), devices = call.query("devices");
  std::optional<Job> job;
  if (asked) {
    if (asked->empty() || asked->size() > 18 || asked->find_first_not_of("0123456789") != std::string::npos)
      return fault_reply(400, "job is the number of a job");
    job = service.store().find(std::stoll(*asked));
    if (!job) return fault_reply(404, fmt::format("no job {}", *asked));
  } else if (const std::vector<Job> newest = service.store().newest(0, 1); !newest.empty()) {
    job = service.store().find(newest.front().id);
  }
  if (!job)
    return {.json = {{"job", nullptr},
                     {"recommendations", Json::array()},
                     {"why_not", "they are of the memory plan of a job, and there is none yet"}}};
  const std::string folder = JobFiles(service.options().root, job->id).folder;
  fs::create_directories(folder);
  const std::string file = folder + "/planned.yaml";
  write_durably(file, job->experiment);
  std::vector<std::string> words = {"plan", file, "output.directory=" + folder + "/planned"};
  if (devices) words.push_back("plan.devices=" + *devices);
  const ProgramAnswer answer = ask_own_program(service.options(), words);
  if (answer.start_error != 0 || answer.took_too_long) return fault_reply(503, "the plan took too long; try again");
  if (answer.exit_code != 0) return fault_reply(422, answer.errors);
  Json lines = Json::array();
  std::istringstream text(answer.output);
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) lines.push_back(line);
  return {.json = {{"job", job->id},
                   {"devices", devices ? Json(*devices) : Json("those of this machine")},
                   {"recommendations", std::move(lines)}}};
}

// The ranks that the launcher starts: the number after -np, -n or --ntasks.
int ranks_of(const std::vector<std::string>& launcher) {
  for (std::size_t i = 0; i + 1 < launcher.size(); ++i)
    if ((launcher[i] == "-np" || launcher[i] == "-n" || launcher[i] == "--ntasks") &&
        launcher[i + 1].find_first_not_of("0123456789") == std::string::npos && launcher[i + 1].size() < 6)
      return std::max(1, std::stoi(launcher[i + 1]));
  return 1;
}

// All three paths: there is one way in which ranks train.
Reply train(Service& service, const Call& call) {
  const Json body = Json::parse(call.body, nullptr, false);
  TrainingRequest request =
      read_training_request(body, gpu_config(service), training_config(service), service.devices().num_gpus(),
                            ranks_of(service.options().launcher), service.options().root);
  if (!request.fault.empty()) return fault_reply(422, request.fault);
  if (!request.data.empty()) {
    const std::string folder = service.options().root + "/texts";
    fs::create_directories(folder);
    const std::string file = folder + "/" + sha256_hex(request.data) + ".jsonl";
    write_durably(file, request.data);
    request.experiment["tasks"][0]["dataset"]["path"] = file;
  }
  Call inner = call;
  inner.content_type = "application/yaml";
  inner.body = request.experiment.dump(2);
  Reply reply = submit_job(service, inner);
  if (reply.status != 201) return reply;
  reply.json = {{"job", std::move(reply.json)},
                {"method", "each rank has a whole copy and its part of a batch; gradients are summed over all ranks"},
                {"experiment", std::move(request.experiment)},
                {"notes", request.notes}};
  return reply;
}

constexpr std::array kUnfitConfig = {413, 422};
constexpr std::array kNoGpu = {404};
constexpr std::array kUnfitTraining = {403, 413, 422};
constexpr std::array kNoPlan = {400, 404, 422};
constexpr std::array kOfPlan = {Query{"job"}, Query{"devices", true}};

using Function = Reply (*)(Service& service, const Call& call);

constexpr Route shows(const char* path, const char* summary, Function function, std::span<const int> statuses = {},
                      std::span<const Query> queries = {}) {
  return {.method = "GET",
          .path = path,
          .summary = summary,
          .reply = "Document",
          .statuses = statuses,
          .queries = queries,
          .function = function};
}

constexpr Route does(const char* path, const char* summary, const char* body, Function function,
                     std::span<const int> statuses, int success = 200) {
  return {.method = "POST",
          .path = path,
          .summary = summary,
          .needs = Route::Needs::kSubmit,
          .body = body,
          .reply = "Document",
          .success = success,
          .statuses = statuses,
          .function = function};
}

constexpr Route trains(const char* path) {
  return does(path, "Queues a training", "Training", train, kUnfitTraining, 201);
}

constexpr std::array kMultigpuRoutes = {
    shows("/multigpu/health", "Whether the service answers, and its GPUs", gpu_health),
    shows("/multigpu/config", "The configuration of later trainings", show_config),
    does("/multigpu/config", "Changes the configuration of GPUs", "Document", set_config, kUnfitConfig),
    shows("/multigpu/stats", "GPUs and host at this moment", stats),
    shows("/multigpu/gpu/{gpu_id}/stats", "One GPU at this moment", gpu_stats, kNoGpu),
    trains("/multigpu/training/dataparallel"),
    trains("/multigpu/training/distributed"),
    trains("/multigpu/training/auto"),
    does("/multigpu/training/config", "Changes the keys of later trainings", "Document", set_training_config,
         kUnfitConfig),
    shows("/multigpu/training/history", "The starts of the ten newest jobs: state, tokens, loss, time, GPU hours",
          history),
    does("/multigpu/resources/manage", "Chooses GPUs of later trainings", "Document", manage, kUnfitConfig),
    shows("/multigpu/resources/status", "GPUs, host, disk and jobs", resources),
    shows("/multigpu/performance/metrics", "Progress of the jobs that run", performance),
    does("/multigpu/gpu/test", "Ranks, devices, links, locks and writing", nullptr, test_gpus, {}),
    shows("/multigpu/gpu/recommendations", "The memory plan of a job with its sums, here or on other devices",
          recommendations, kNoPlan, kOfPlan),
};

}  // namespace

std::span<const Route> multigpu_routes() { return kMultigpuRoutes; }

}  // namespace magister
