// The OpenAPI 3.1 document, made from the table of routes. Its schemas are written here.
#include "serve/routes.h"

namespace magister {
namespace {

using Json = nlohmann::ordered_json;

Json text() { return {{"type", "string"}}; }
Json number_or_null() { return {{"type", Json::array({"number", "null"})}}; }
Json integer() { return {{"type", "integer"}}; }
// As a path or a query holds it: at most 18 digits.
Json number() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", 999999999999999999}}; }
Json object(Json properties) {
  Json required = Json::array();
  for (const auto& [name, value] : properties.items()) required.push_back(name);
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

Json training() {
  Json body = object({{"model_name", text()}, {"dataset_config", {{"type", "object"}}}});
  body["properties"]["training_config"] = {{"type", "object"}};
  body["properties"]["user_id"] = {{"type", Json::array({"integer", "string"})}};
  body["properties"]["training_type"] = text();
  return body;
}

Json schemas() {
  const Json state = {{"type", "string"},
                      {"enum", Json::array({"queued", "running", "stopping", "done", "failed", "cancelled"})}};
  Json job = object({{"id", integer()},
                     {"name", text()},
                     {"owner", text()},
                     {"state", state},
                     {"created", {{"type", "number"}}},
                     {"started", number_or_null()},
                     {"ended", number_or_null()},
                     {"exit_code", {{"type", Json::array({"integer", "null"})}}},
                     {"starts", integer()},
                     {"message", text()}});
  job["properties"]["experiment"] = text();
  return {
      {"Health", object({{"status", text()}, {"seconds", {{"type", "number"}}}})},
      {"Document", {{"type", "object"}}},
      {"Job", std::move(job)},
      {"Jobs", object({{"jobs", {{"type", "array"}, {"items", {{"$ref", "#/components/schemas/Job"}}}}}})},
      {"Files", object({{"files", {{"type", "array"}, {"items", object({{"file", text()}, {"bytes", integer()}})}}}})},
      {"Training", training()},
      {"Experiment", {{"type", "object"}, {"description", "An experiment, as `magister schema` describes it."}}},
      {"Fault", object({{"error", object({{"status", integer()}, {"message", text()}})}})},
  };
}

Json content(const char* schema) {
  return {{"application/json", {{"schema", {{"$ref", std::string("#/components/schemas/") + schema}}}}}};
}

// One of the server-sent events of a job: JSON in `data`, {"text": ...} of the log or {"state": ...}.
Json event() {
  Json event = object({{"event", text()}, {"data", text()}});
  event["properties"]["event"]["enum"] = Json::array({"log", "state"});
  return event;
}

Json responses_of(const Route& route) {
  Json responses;
  const bool sends_files = std::string_view(route.path).find("{file}") != std::string_view::npos;
  if (sends_files) responses["206"] = {{"description", "The ranges that were asked for."}};
  responses[std::to_string(route.success)] = {
      {"description", route.summary},
      {"content", route.reply != nullptr ? content(route.reply)
                                         : Json{{sends_files                 ? "application/octet-stream"
                                                 : route.function == nullptr ? "text/event-stream"
                                                                             : "text/plain",
                                                 {{"schema", route.function == nullptr ? event() : text()}}}}}};
  std::vector<int> faults(route.statuses.begin(), route.statuses.end());
  faults.insert(faults.end(), {400, 414});  // the library refuses these before any function is called
  if (route.needs != Route::Needs::kNothing) faults.insert(faults.end(), {401, 403, 429, 503});
  for (const int status : faults)
    responses[std::to_string(status)] = {{"description", "The message says why."}, {"content", content("Fault")}};
  return responses;
}

// An experiment that is accepted, for readers and for programs that try the paths.
Json example() {
  return {{"name", "example"},
          {"model", {{"path", "models/NAME"}}},
          {"tasks", Json::array({{{"task", "generate"}, {"dataset", {{"path", "prompts.jsonl"}}}}})}};
}

// The paths of a job, which take its id from the answer to its submission.
Json links(std::span<const Route> routes) {
  Json all = Json::object();
  for (const Route& route : routes) {
    const std::string path = route.path;
    if (!path.starts_with("/v1/jobs/{id}") || path.find("{file}") != std::string::npos) continue;
    const std::string method = std::string_view(route.method) == "GET" ? "get" : "post";
    std::string escaped;
    for (const char c : path) escaped += c == '/' ? "~1" : std::string(1, c);
    const std::string end = path.substr(path.rfind('/') + 1);
    all[end == "{id}" ? "job" : end] = {{"operationRef", "#/paths/" + escaped + "/" + method},
                                        {"parameters", {{"id", "$response.body#/id"}}}};
  }
  return all;
}

// The {words} of a path.
std::vector<std::string> places_of(const std::string& path) {
  std::vector<std::string> names;
  for (std::size_t at = path.find('{'); at != std::string::npos; at = path.find('{', at + 1))
    names.push_back(path.substr(at + 1, path.find('}', at) - at - 1));
  return names;
}

Json operation_of(const Route& route, std::span<const Route> routes) {
  Json operation = {{"summary", route.summary}, {"responses", responses_of(route)}};
  Json parameters = Json::array();
  for (const std::string& name : places_of(route.path))
    parameters.push_back(
        {{"name", name},
         {"in", "path"},
         {"required", true},
         {"schema", name == "file" ? Json{{"type", "string"}, {"minLength", 1}, {"maxLength", 1000}} : number()}});
  for (const Query& query : route.queries)
    parameters.push_back({{"name", query.name}, {"in", "query"}, {"schema", query.is_text ? text() : number()}});
  if (route.success == 201) parameters.push_back({{"name", "Idempotency-Key"}, {"in", "header"}, {"schema", text()}});
  if (route.body != nullptr) operation["requestBody"] = {{"required", true}, {"content", content(route.body)}};
  if (route.body != nullptr && std::string_view(route.body) == "Experiment")
    operation["requestBody"]["content"]["application/yaml"] = {{"schema", text()}};
  if (std::string_view(route.path) == "/v1/jobs" && route.success == 201) {
    operation["requestBody"]["content"]["application/json"]["example"] = example();
    operation["responses"]["201"]["links"] = links(routes);
  }
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (route.needs == Route::Needs::kNothing) operation["security"] = Json::array();
  return operation;
}

}  // namespace

Json openapi_document(std::span<const Route> routes) {
  Json paths = Json::object();
  for (const Route& route : routes) {
    const bool gets = std::string_view(route.method) == "GET";
    paths[route.path][gets ? "get" : "post"] = operation_of(route, routes);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "magister"},
            {"version", "1"},
            {"description", "Experiments as jobs: submit, watch, cancel, resume."}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", schemas()}, {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", Json::array({{{"token", Json::array()}}})}};
}

}  // namespace magister
