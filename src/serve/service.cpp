// The HTTP server around the routes: tokens, rates, sizes, the audit log, and the events of a job.
#include <httplib.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "magister/core/embedded_page.h"
#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/core/utf8.h"
#include "serve/checked_experiment.h"
#include "serve/connections.h"
#include "serve/routes.h"
#include "serve/sent_file.h"
#include "serve/server.h"
#include "serve/supervisor.h"

namespace magister {

extern const EmbeddedPage kServicePages[];  // page.html, from the build

namespace {

// What a request lacks that the HTTP library refuses by itself.
const char* library_fault(int status) {
  if (status == 400) return "the request is no HTTP that can be read";
  if (status == 413) return "a body may have 8 MiB at most";
  if (status == 414) return "the path is longer than the service reads";
  return "no such path or method (see /openapi.json)";
}

constexpr std::size_t kMostBody = 8 << 20;
constexpr int kThreads = 256;  // one for each connection that is open
constexpr int kFailuresAMinute = 30;
constexpr int kMostStreams = 128;  // files and events that are sent at a time: the other threads answer quickly
constexpr auto kPoll = std::chrono::milliseconds(200);
constexpr int kRoundsToEnd = 25;  // of kPoll: how long answers at work may take once the service ends

std::string bearer_of(const httplib::Request& request) {
  const std::string header = request.get_header_value("Authorization");
  return header.starts_with("Bearer ") ? header.substr(7) : "";
}

// A route's path as a regular expression of httplib.
std::string pattern_of(const char* path) {
  std::string pattern;
  for (const char* at = path; *at != '\0'; ++at) {
    if (*at == '{') {
      pattern += std::strncmp(at, "{file}", 6) == 0 ? "(.{1,1000})" : "([0-9]{1,18})";
      at = std::strchr(at, '}');
    } else {
      pattern += *at == '.' ? "\\." : std::string(1, *at);
    }
  }
  return pattern;
}

void send(const httplib::Request& request, httplib::Response& response, const Reply& reply) {
  forget_ranges(request);
  response.status = reply.status;
  if (reply.content_type == "application/json")
    response.set_content(reply.json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n",
                         "application/json");
  else
    response.set_content(reply.text, reply.content_type.c_str());
}

class Server {
 public:
  Server(Service& service, httplib::Server& http, Connections& connections)
      : service_(service),
        http_(http),
        connections_(connections),
        rate_(service.options().requests_a_minute),
        failures_(kFailuresAMinute) {
    if (!service.options().tokens_file.empty()) tokens_.emplace(service.options().tokens_file);
    audit_.open(service.options().root + "/audit.log", std::ios::app);
    for (const Route& route : all_routes()) add(route);
    http_.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline'");
      response.set_content(reinterpret_cast<const char*>(kServicePages[0].bytes), kServicePages[0].num_bytes,
                           "text/html; charset=utf-8");
    });
    http_.set_logger([this](const httplib::Request& request, const httplib::Response&) {
      connections_.answered(request.remote_addr, request.remote_port);
    });
    http_.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (response.body.empty()) send(request, response, fault_reply(response.status, library_fault(response.status)));
    });
    http_.set_exception_handler(
        [](const httplib::Request& request, httplib::Response& response, std::exception_ptr error) {
          try {
            std::rethrow_exception(error);
          } catch (const std::exception& fault) {
            log_error("a request: {}", fault.what());
            const auto* const known = dynamic_cast<const Error*>(&fault);
            if (known != nullptr && known->code() == ExitCode::kInputOutput)  // a full disk, most of the time
              return send(request, response,
                          fault_reply(503,
                                      "the service cannot write or read its files (nothing was changed); its log "
                                      "says why, try again later"));
            send(request, response, fault_reply(500, "the service could not do that; its log says why"));
          }
        });
  }

 private:
  void add(const Route& route) {
    const auto handle = [this, &route](const httplib::Request& request, httplib::Response& response) {
      connections_.answers(request.remote_addr, request.remote_port);
      if (route.function == nullptr) return events(request, response);
      Call call{.places = {},
                .body = request.body,
                .content_type = request.get_header_value("Content-Type"),
                .idempotency_key = request.get_header_value("Idempotency-Key"),
                .query =
                    [&request](const char* name) {
                      return request.has_param(name) ? std::optional(request.get_param_value(name)) : std::nullopt;
                    },
                .who = {}};
      for (std::size_t i = 1; i < request.matches.size(); ++i) call.places.push_back(request.matches[i]);
      if (!admit(request, response, route.needs, call.who)) return;
      const Reply reply = route.function(service_, call);
      if (reply.file.empty())
        send(request, response, reply);
      else if (const Stream stream = open_stream(request, response);
               stream && !send_file(request, response, reply.file, stream))
        send(request, response, fault_reply(416, "no such range of the file"));
      if (route.needs == Route::Needs::kSubmit) audit(call.who, request, response.status);
    };
    const std::string pattern = pattern_of(route.path);
    if (std::string_view(route.method) == "GET")
      http_.Get(pattern, handle);
    else
      http_.Post(pattern, handle);
  }

  // False: the response says why.
  bool admit(const httplib::Request& request, httplib::Response& response, Route::Needs needs, Principal& who) {
    ++service_.requests;
    const auto refuse = [&](int status, const char* why) {
      ++service_.refused;
      send(request, response, fault_reply(status, why));
      return false;
    };
    if (needs == Route::Needs::kNothing) return true;
    if (!tokens_) {
      const char* const why = foreign_request(request.get_header_value("Host"), request.get_header_value("Origin"));
      if (why != nullptr) return refuse(403, why);
    }
    if (tokens_) {
      std::optional<Principal> found = tokens_->find_known(bearer_of(request));
      if (!found && !failures_.take(request.remote_addr)) return refuse(429, "too many unknown tokens; wait a minute");
      if (!found) found = tokens_->find(bearer_of(request));
      if (!found) {
        response.set_header("WWW-Authenticate", "Bearer");
        return refuse(401, "no token, or an unknown one; send the header Authorization: Bearer TOKEN");
      }
      who = *found;
    }
    if (tokens_ && !rate_.take(who.name)) {
      response.set_header("Retry-After", "1");
      return refuse(429, "more requests a minute than a token has; wait");
    }
    if (needs == Route::Needs::kSubmit && who.role != Role::kSubmit)
      return refuse(403, "this token may read only; use one with the role submit");
    return true;
  }

  void audit(const Principal& who, const httplib::Request& request, int status) {
    const std::lock_guard lock(audit_mutex_);
    audit_.clear();  // a line that found no space is lost, the next one may find it
    audit_ << nlohmann::ordered_json{{"time", std::time(nullptr)}, {"from", request.remote_addr}, {"token", who.name},
                                     {"method", request.method},   {"path", request.path},        {"status", status}}
                  .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
           << std::endl;
    if (!audit_)
      log_error("audit.log: {} {} by {} cannot be written", request.method, printable(request.path, 200), who.name);
  }

  using Stream = std::shared_ptr<std::atomic<int>>;  // an answer that is sent for long counts as long as this exists
  // Null: there are too many, and the response says so.
  Stream open_stream(const httplib::Request& request, httplib::Response& response) {
    Stream stream(&streams_, [](std::atomic<int>* count) { --*count; });
    if (++streams_ <= kMostStreams) return stream;
    response.set_header("Retry-After", "1");
    send(request, response, fault_reply(503, "the service sends as many files and events as it can; try again"));
    return nullptr;
  }

  // Server-sent events: `state` whenever it changes, `log` with each new piece of the log, until the job has ended.
  void events(const httplib::Request& request, httplib::Response& response) {
    Principal who;
    if (!admit(request, response, Route::Needs::kRead, who)) return;
    const std::int64_t id = std::stoll(request.matches[1]);
    if (!service_.store().find(id)) return send(request, response, fault_reply(404, "no such job"));
    const Stream stream = open_stream(request, response);
    if (!stream) return;
    struct Sent {
      Stream stream;
      std::string state;
      std::uint64_t bytes = 0;
    };
    response.set_chunked_content_provider(
        "text/event-stream", [this, id, sent = std::make_shared<Sent>(stream)](std::size_t, httplib::DataSink& sink) {
          const std::optional<Job> job = service_.store().find(id);
          const auto send_event = [&sink](const char* name, const nlohmann::ordered_json& data) {
            const std::string text =
                fmt::format("event: {}\ndata: {}\n\n", name,
                            data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
            return sink.write(text.data(), text.size());
          };
          std::ifstream log(JobFiles(service_.options().root, id).log, std::ios::binary);
          std::string piece(1 << 16, '\0');
          log.seekg(static_cast<std::streamoff>(sent->bytes));
          log.read(piece.data(), static_cast<std::streamsize>(piece.size()));
          piece.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, log.gcount())));
          // A character whose other bytes are still to come belongs to the next piece.
          if (const std::size_t whole = find_invalid_utf8(piece); whole > 0 && piece.size() - whole < 4)
            piece.resize(whole);
          sent->bytes += piece.size();
          if (!piece.empty() && !send_event("log", {{"text", piece}})) return false;
          if (sent->state != name_of(job->state)) {
            sent->state = name_of(job->state);
            if (!send_event("state", {{"state", sent->state}})) return false;
          }
          const bool ended =
              job->state == JobState::kDone || job->state == JobState::kFailed || job->state == JobState::kCancelled;
          if (piece.empty() && ended)
            sink.done();
          else if (piece.empty())
            std::this_thread::sleep_for(kPoll);
          return sink.is_writable();
        });
  }

  Service& service_;
  httplib::Server& http_;
  Connections& connections_;
  std::atomic<int> streams_ = 0;
  std::optional<Tokens> tokens_;
  RateLimit rate_, failures_;
  std::mutex audit_mutex_;
  std::ofstream audit_;
};

void check_options(const ServeOptions& options) {
  const bool local = options.host == "127.0.0.1" || options.host == "::1" || options.host == "localhost";
  MAGISTER_CHECK(local || !options.tokens_file.empty(), ExitCode::kConfig,
                 "--listen {} without --tokens (everybody on the network could start jobs); make a token with "
                 "--add-token NAME:submit, or listen on 127.0.0.1",
                 printable(options.host, 60));
  MAGISTER_CHECK(options.certificate.empty() == options.key.empty(), ExitCode::kConfig,
                 "--certificate and --key belong together (TLS needs both); give both or none");
}

}  // namespace

Service::Service(const ServeOptions& options) : options_(options), store_(options.root + "/jobs.sqlite") {}

void serve(const ServeOptions& given, const std::function<bool()>& should_stop,
           const std::function<void(int port)>& ready) {
  ServeOptions options = given;
  check_options(options);
  std::filesystem::create_directories(options.root);
  options.root = std::filesystem::canonical(options.root);
  remove_old_checks(options.root);
  const std::unique_ptr<httplib::Server> http =
      options.certificate.empty()
          ? std::make_unique<httplib::Server>()
          : std::make_unique<httplib::SSLServer>(options.certificate.c_str(), options.key.c_str());
  MAGISTER_CHECK(http->is_valid(), ExitCode::kConfig, "{} and {} are no certificate and key (TLS needs PEM files)",
                 printable(options.certificate), printable(options.key));
  Service service(options);
  Connections connections(kThreads);
  const Server server(service, *http, connections);
  http->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  http->set_payload_max_length(kMostBody);
  http->set_read_timeout(10);
  http->set_write_timeout(10);
  http->set_tcp_nodelay(true);  // a header and its body are two pieces: the second would wait 40 ms for the first
  http->set_keep_alive_max_count(100000);
  int listening = -1;
  http->set_socket_options([&listening](int socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listening = socket;
  });
  const int port = options.port == 0 ? http->bind_to_any_port(options.host.c_str())
                   : http->bind_to_port(options.host.c_str(), options.port) ? options.port
                                                                            : -1;
  MAGISTER_CHECK(port > 0, ExitCode::kInputOutput,
                 "{}:{} cannot be opened (another program has it, or the address is not this machine's); choose "
                 "another with --listen",
                 printable(options.host, 60), options.port);
  listen(listening,
         SOMAXCONN);  // the library lets five clients wait; the sixth of many would be refused or wait for seconds
  const Supervisor supervisor(options, service.store());
  std::atomic<bool> has_ended = false;
  std::thread accepting([&] {
    http->listen_after_bind();
    has_ended = true;
  });
  ready(port);
  while (!should_stop()) {
    std::this_thread::sleep_for(kPoll);
    connections.close_idle(port);
  }
  http->stop();
  for (int round = 0; !has_ended; ++round) {
    connections.close_all(port, round >= kRoundsToEnd);
    std::this_thread::sleep_for(kPoll);
  }
  accepting.join();
}

}  // namespace magister
