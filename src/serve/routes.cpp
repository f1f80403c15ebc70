// The functions of the paths. Those of one job answer 404 for a job that does not exist.
#include "serve/routes.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "magister/core/error.h"
#include "serve/checked_experiment.h"
#include "serve/server.h"
#include "serve/supervisor.h"

namespace magister {
namespace {

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
  for (const JobState state : {JobState::kQueued, JobState::kRunning, JobState::kStopping, JobState::kDone,
                               JobState::kFailed, JobState::kCancelled})
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

Reply submit(Service& service, const Call& call) {
  if (call.body.empty()) return fault_reply(400, "the body is empty; send an experiment as YAML or JSON");
  const CheckedExperiment checked = check_experiment(service.options(), experiment_of(call));
  if (!checked.fault.empty()) return fault_reply(checked.status, checked.fault);
  const Job job = service.store().add(checked.name, call.who.name, checked.text, call.idempotency_key);
  return {.status = 201, .json = json_of(job)};
}

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

constexpr std::array kPage = {"before", "limit"};
constexpr std::array kUnfit = {400, 413, 422, 503};
constexpr std::array kBadQuery = {400};
constexpr std::array kMissing = {404};
constexpr std::array kOtherState = {404, 409};
using enum Route::Needs;

constexpr std::array kRoutes = {
    Route{"GET",
          "/v1/health",
          "Whether the service answers, and since when",
          kNothing,
          nullptr,
          "Health",
          {},
          {},
          health},
    Route{"GET", "/openapi.json", "This document", kNothing, nullptr, "Document", {}, {}, openapi},
    Route{"GET", "/metrics", "Numbers for Prometheus", kRead, nullptr, nullptr, {}, {}, metrics},
    Route{"GET", "/v1/jobs", "Jobs, the newest first", kRead, nullptr, "Jobs", kBadQuery, kPage, list_jobs},
    Route{"POST", "/v1/jobs", "Queues an experiment", kSubmit, "Experiment", "Job", kUnfit, {}, submit},
    Route{"GET", "/v1/jobs/{id}", "One job with its experiment", kRead, nullptr, "Job", kMissing, {}, show_job},
    Route{"GET",
          "/v1/jobs/{id}/log",
          "The last megabyte of what the job has written",
          kRead,
          nullptr,
          nullptr,
          kMissing,
          {},
          log_of_job},
    Route{"POST",
          "/v1/jobs/{id}/cancel",
          "Stops a job cleanly; what it computed is kept",
          kSubmit,
          nullptr,
          "Job",
          kOtherState,
          {},
          cancel},
    Route{"POST",
          "/v1/jobs/{id}/resume",
          "Queues a cancelled or failed job again",
          kSubmit,
          nullptr,
          "Job",
          kOtherState,
          {},
          resume},
};

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

Reply fault_reply(int status, const std::string& message) {
  return {.status = status, .json = {{"error", {{"status", status}, {"message", message}}}}};
}

}  // namespace magister
