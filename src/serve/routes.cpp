// The functions of the paths. Those of one job answer 404 for a job that does not exist.
#include "serve/routes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "magister/core/error.h"
#include "serve/checked_experiment.h"
#include "serve/job_progress.h"
#include "serve/server.h"
#include "serve/supervisor.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json json_of(const Job& job) {
  Json out = {{"id", job.id},
              {"name", job.name},
              {"owner", job.owner},
              {"state", name_of(job.state)},
              {"created", job.created},
              {"started", job.started ? Json(*job.started) : Json()},
              {"ended", job.ended ? Json(*job.ended) : Json()},
              {"exit_code", job.exit_code ? Json(*job.exit_code) : Json()},
              {"starts", job.starts},
              {"message", job.message}};
  return out;
}

std::optional<Job> job_of(Service& service, const Call& call) {
  return service.store().find(std::stoll(call.places.at(0)));
}

Reply no_such_job(const Call& call) { return fault_reply(404, fmt::format("no job {}", call.places.at(0))); }

// A number of the query within [low, high]; no value for another text.
std::optional<std::int64_t> number_of(const Call& call, const char* name, std::int64_t usual, std::int64_t low,
                                      std::int64_t high) {
  const std::optional<std::string> text = call.query(name);
  if (!text) return usual;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < low || number > high) return std::nullopt;
  return number;
}

Reply health(Service& service, const Call&) { return {.json = {{"status", "ok"}, {"seconds", service.seconds()}}}; }

Reply openapi(Service&, const Call&) { return {.json = openapi_document(all_routes())}; }

Reply metrics(Service& service, const Call&) {
  std::string text = "# HELP magister_jobs Jobs of the service by state.\n# TYPE magister_jobs gauge\n";
  for (const JobState state : all_states())
    text += fmt::format("magister_jobs{{state=\"{}\"}} {}\n", name_of(state), service.store().count(state));
  text += fmt::format(
      "# HELP magister_requests_total Requests to paths of the service.\n# TYPE magister_requests_total counter\n"
      "magister_requests_total {}\n# HELP magister_requests_refused_total Requests without a right to what they ask "
      "for.\n# TYPE magister_requests_refused_total counter\nmagister_requests_refused_total {}\n"
      "# HELP magister_uptime_seconds Time since the service began.\n# TYPE magister_uptime_seconds gauge\n"
      "magister_uptime_seconds {:.3f}\n",
      service.requests.load(), service.refused.load(), service.seconds());
  return {.text = std::move(text), .content_type = "text/plain; version=0.0.4"};
}

Reply list_jobs(Service& service, const Call& call) {
  const auto before = number_of(call, "before", 0, 0, INT64_MAX), limit = number_of(call, "limit", 100, 1, 1000);
  if (!before || !limit) return fault_reply(400, "before is a job's id, and limit a number from 1 to 1000");
  Json jobs = Json::array();
  for (const Job& job : service.store().newest(*before, *limit)) jobs.push_back(json_of(job));
  return {.json = {{"jobs", std::move(jobs)}}};
}

// The experiment of a request: the body itself (YAML or JSON), or the text of its member `experiment`.
std::string experiment_of(const Call& call) {
  if (call.content_type.find("json") == std::string::npos) return call.body;
  const Json body = Json::parse(call.body, nullptr, false);
  if (!body.is_object() || body.size() != 1 || !body.contains("experiment")) return call.body;
  const Json& inner = body["experiment"];
  return inner.is_string() ? inner.get<std::string>() : inner.dump();
}

}  // namespace

Reply submit_job(Service& service, const Call& call) {
  if (call.body.empty()) return fault_reply(400, "the body is empty; send an experiment as YAML or JSON");
  const CheckedExperiment checked = check_experiment(service.options(), experiment_of(call));
  if (!checked.fault.empty()) return fault_reply(checked.status, checked.fault);
  const Job job = service.store().add(checked.name, call.who.name, checked.text, call.idempotency_key);
  return {.status = 201, .json = json_of(job)};
}

namespace {

Reply show_job(Service& service, const Call& call) {
  const std::optional<Job> job = job_of(service, call);
  if (!job) return no_such_job(call);
  Json out = json_of(*job);
  out["experiment"] = job->experiment;
  return {.json = std::move(out)};
}

Reply changed(Service& service, const Call& call, bool (JobStore::*change)(std::int64_t), const char* why) {
  const std::optional<Job> job = job_of(service, call);
  if (!job) return no_such_job(call);
  if (!(service.store().*change)(job->id))
    return fault_reply(409, fmt::format("job {} is {}; {}", job->id, name_of(job->state), why));
  return {.json = json_of(*service.store().find(job->id))};
}

Reply cancel(Service& service, const Call& call) {
  return changed(service, call, &JobStore::ask_to_stop, "only a queued or running job can be cancelled");
}

Reply resume(Service& service, const Call& call) {
  return changed(service, call, &JobStore::requeue, "only a cancelled or failed job can be resumed");
}

Reply log_of_job(Service& service, const Call& call) {
  const std::optional<Job> job = job_of(service, call);
  if (!job) return no_such_job(call);
  constexpr std::streamoff kMost = 1 << 20;  // the end of a long log
  std::ifstream log(JobFiles(service.options().root, job->id).log, std::ios::binary | std::ios::ate);
  const std::streamoff size = log ? static_cast<std::streamoff>(log.tellg()) : 0;
  std::string text(static_cast<std::size_t>(std::min(size, kMost)), '\0');
  log.seekg(size - static_cast<std::streamoff>(text.size()));
  log.read(text.data(), static_cast<std::streamsize>(text.size()));
  return {.text = std::move(text), .content_type = "text/plain; charset=utf-8"};
}

Reply show_progress(Service& service, const Call& call) {
  const std::optional<Job> job = job_of(service, call);
  if (!job) return no_such_job(call);
  return {.json = progress_of(JobFiles(service.options().root, job->id).folder + "/" + job->name)};
}

// The files of a job's folder that a run wrote: below the folder of the run, without what is still being made.
Reply list_results(Service& service, const Call& call) {
  const std::optional<Job> job = job_of(service, call);
  if (!job) return no_such_job(call);
  Json files = Json::array();
  std::error_code error;
  const fs::path folder = JobFiles(service.options().root, job->id).folder;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || at->is_symlink(gone) || gone) continue;
    files.push_back({{"file", at->path().lexically_relative(folder).string()}, {"bytes", at->file_size(gone)}});
  }
  std::sort(files.begin(), files.end(),
            [](const Json& a, const Json& b) { return a["file"].get<std::string>() < b["file"].get<std::string>(); });
  return {.json = {{"files", std::move(files)}}};
}

Reply result(Service& service, const Call& call) {
  const std::optional<Job> job = job_of(service, call);
  if (!job) return no_such_job(call);
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(JobFiles(service.options().root, job->id).folder, error);
  const fs::path path = error ? fs::path() : fs::canonical(folder / fs::path(call.places.at(1)).relative_path(), error);
  const fs::path below = error ? fs::path() : path.lexically_relative(folder);
  if (error || below.empty() || *below.begin() == ".." || !fs::is_regular_file(path, error))
    return fault_reply(404,
                       fmt::format("job {} has no such file (GET /v1/jobs/{}/results lists them)", job->id, job->id));
  return {.content_type = "application/octet-stream", .file = path.string()};
}

constexpr std::array kPage = {Query{"before"}, Query{"limit"}};
constexpr std::array kUnfit = {400, 403, 413, 422};
constexpr std::array kBadQuery = {400};
constexpr std::array kMissing = {404};
constexpr std::array kMissingRange = {404, 416};
constexpr std::array kOtherState = {404, 409};
using enum Route::Needs;

constexpr std::array kRoutes = {
    Route{.method = "GET",
          .path = "/v1/health",
          .summary = "Whether the service answers, and since when",
          .needs = kNothing,
          .reply = "Health",
          .function = health},
    Route{.method = "GET",
          .path = "/openapi.json",
          .summary = "This document",
          .needs = kNothing,
          .reply = "Document",
          .function = openapi},
    Route{
        .method = "GET", .path = "/metrics", .summary = "Numbers for Prometheus", .needs = kRead, .function = metrics},
    Route{.method = "GET",
          .path = "/v1/jobs",
          .summary = "Jobs, the newest first",
          .needs = kRead,
          .reply = "Jobs",
          .statuses = kBadQuery,
          .queries = kPage,
          .function = list_jobs},
    Route{.method = "POST",
          .path = "/v1/jobs",
          .summary = "Queues an experiment",
          .needs = kSubmit,
          .body = "Experiment",
          .reply = "Job",
          .success = 201,
          .statuses = kUnfit,
          .function = submit_job},
    Route{.method = "GET",
          .path = "/v1/jobs/{id}",
          .summary = "One job with its experiment",
          .needs = kRead,
          .reply = "Job",
          .statuses = kMissing,
          .function = show_job},
    Route{.method = "GET",
          .path = "/v1/jobs/{id}/log",
          .summary = "The last megabyte of what the job has written",
          .needs = kRead,
          .statuses = kMissing,
          .function = log_of_job},
    Route{.method = "GET",
          .path = "/v1/jobs/{id}/events",
          .summary = "Server-sent events: log, with each new piece of it, and state, until the job has ended",
          .needs = kRead,
          .statuses = kMissing,
          .function = nullptr},
    Route{.method = "GET",
          .path = "/v1/jobs/{id}/progress",
          .summary = "Speed and place of the job's run, and what its ranks measure",
          .needs = kRead,
          .reply = "Document",
          .statuses = kMissing,
          .function = show_progress},
    Route{.method = "GET",
          .path = "/v1/jobs/{id}/results",
          .summary = "The files of the job",
          .needs = kRead,
          .reply = "Files",
          .statuses = kMissing,
          .function = list_results},
    Route{.method = "GET",
          .path = "/v1/jobs/{id}/results/{file}",
          .summary = "One file, whole or by ranges",
          .needs = kRead,
          .statuses = kMissingRange,
          .function = result},
    Route{.method = "POST",
          .path = "/v1/jobs/{id}/cancel",
          .summary = "Stops a job cleanly; what it computed is kept",
          .needs = kSubmit,
          .reply = "Job",
          .statuses = kOtherState,
          .function = cancel},
    Route{.method = "POST",
          .path = "/v1/jobs/{id}/resume",
          .summary = "Queues a cancelled or failed job again",
          .needs = kSubmit,
          .reply = "Job",
          .statuses = kOtherState,
          .function = resume},
};

}  // namespace

std::span<const Route> all_routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> routes(kRoutes.begin(), kRoutes.end());
    routes.insert(routes.end(), multigpu_routes().begin(), multigpu_routes().end());
    return routes;
  }();
  return all;
}

Reply fault_reply(int status, const std::string& message) {
  return {.status = status, .json = {{"error", {{"status", status}, {"message", message}}}}};
}

}  // namespace magister
