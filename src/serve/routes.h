// The table of the service's paths. The server, the OpenAPI document and the tests are made from it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/access.h"

namespace magister {

struct Call {
  std::vector<std::string> places;  // values of the {words} of the path
  std::string body;
  std::string content_type, idempotency_key;
  std::function<std::optional<std::string>(const char* name)> query;
  Principal who;
};

struct Reply {
  int status = 200;
  nlohmann::ordered_json json = nullptr;
  std::string text{}, content_type = "application/json";  // text: sent instead of json if content_type is another
  std::string file{};  // path: sent instead of both, in the ranges that the request asks for
};

struct Query {
  const char* name;
  bool is_text = false;  // else a number from 0
};

struct Route {
  const char* method;
  const char* path;     // "/v1/jobs/{id}"; {file} takes slashes, other {words} are numbers
  const char* summary;  // one line
  enum class Needs { kNothing, kRead, kSubmit } needs = Needs::kRead;
  const char* body = nullptr;   // name of a schema in openapi.cpp; null: the request has no body
  const char* reply = nullptr;  // likewise; null: text or bytes
  int success = 200;
  std::span<const int> statuses{};  // besides 401, 403, 429 and 503 of every route with a token
  std::span<const Query> queries{};
  Reply (*function)(class Service& service, const Call& call);  // null: the server sends the events of a job
};

std::span<const Route> all_routes();
std::span<const Route> multigpu_routes();  // a part of them
// Checks and queues the experiment of the call's body: 201 and the job, or a fault.
Reply submit_job(class Service& service, const Call& call);
// The OpenAPI 3.1 document of these routes.
nlohmann::ordered_json openapi_document(std::span<const Route> routes);

// {"error": {"status": 404, "message": "..."}}
Reply fault_reply(int status, const std::string& message);

}  // namespace magister
