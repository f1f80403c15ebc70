// serve: the service of jobs (magister/serve/service.h), with the options of the command line.
#include <filesystem>
#include <sstream>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/core/log.h"
#include "magister/serve/service.h"

namespace magister {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

void read_address(const std::string& text, ServeOptions& options) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  MAGISTER_CHECK(!port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos &&
                     std::stoi(port) <= 65535 && colon > 0,
                 ExitCode::kUsage, "--listen {} is no address and port (the service needs both); write 127.0.0.1:8000",
                 printable(text, 60));
  options.host = text.substr(0, colon);
  options.port = std::stoi(port);
}

int number_of(const CommandLine& line, const char* option, int usual, int most) {
  const std::string text = line.option(option);
  if (text.empty()) return usual;
  MAGISTER_CHECK(text.size() <= 7 && text.find_first_not_of("0123456789") == std::string::npos &&
                     std::stoi(text) >= 1 && std::stoi(text) <= most,
                 ExitCode::kUsage, "{} {} is no number from 1 to {}; write one", option, printable(text, 20), most);
  return std::stoi(text);
}

ServeOptions options_of(const CommandLine& line) {
  ServeOptions options;
  options.root = line.option("--root", "service");
  options.tokens_file = line.option("--tokens");
  options.certificate = line.option("--certificate");
  options.key = line.option("--key");
  options.launcher = words_of(line.option("--launcher", "mpirun -np 1"));
  options.sbatch = words_of(line.option("--sbatch"));
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  options.jobs_at_once = number_of(line, "--jobs", 1, 1000);
  options.requests_a_minute = number_of(line, "--rate", 6000, 1000000);
  if (const std::string folder = line.option("--folder"); !folder.empty()) options.folders.push_back(folder);
  read_address(line.option("--listen", "127.0.0.1:8000"), options);
  return options;
}

}  // namespace

ExitCode serve_command(Invocation& call) {
  MAGISTER_CHECK(call.world.size() == 1, ExitCode::kUsage,
                 "serve runs as one process (it starts ranks for its jobs itself); start it without mpirun");
  const ServeOptions options = options_of(call.line);
  if (const std::string text = call.line.option("--add-token"); !text.empty()) {
    MAGISTER_CHECK(!options.tokens_file.empty(), ExitCode::kUsage,
                   "--add-token without --tokens (the hash is appended to that file); name the file");
    const std::size_t colon = std::min(text.find(':'), text.size());
    say(add_token(options.tokens_file, text.substr(0, colon), colon < text.size() ? text.substr(colon + 1) : "") +
        "\n");
    return ExitCode::kDone;
  }
  serve(
      options, [&call] { return call.stop.signal.load(std::memory_order_relaxed) != 0; },
      [&options](int port) {
        say(fmt::format("serving http{}://{}:{}/ (jobs in {}, {} at a time); end it with Ctrl-C, jobs go on\n",
                        options.certificate.empty() ? "" : "s", options.host, port, options.root,
                        options.jobs_at_once));
        flush_standard_output();
      });
  return ExitCode::kDone;
}

}  // namespace magister
