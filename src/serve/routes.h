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
};

struct Route {
  const char* method;
  const char* path;     // "/v1/jobs/{id}"
  const char* summary;  // one line
  enum class Needs { kNothing, kRead, kSubmit } needs = Needs::kRead;
  const char* body = nullptr;       // name of a schema in openapi.cpp; null: the request has no body
  const char* reply = nullptr;      // likewise; null: text
  std::span<const int> statuses{};  // besides 401, 403, 429 of every route with a token
  std::span<const char* const> queries{};
  Reply (*function)(class Service& service, const Call& call);
};

std::span<const Route> all_routes();
// The OpenAPI 3.1 document of these routes.
nlohmann::ordered_json openapi_document(std::span<const Route> routes);

// {"error": {"status": 404, "message": "..."}}
Reply fault_reply(int status, const std::string& message);

}  // namespace magister
