#include "serve/batch_system.h"

#include <fstream>

#include "magister/core/child_process.h"

namespace magister {
namespace {

constexpr double kSlurmSeconds = 20;  // of a controller that is busy
constexpr std::size_t kMostSlurmOutput = 1 << 16;

// As one word of POSIX sh.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string batch_script(const std::vector<std::string>& words) {
  std::string text = "#!/bin/sh\nexec";
  for (const std::string& word : words) text += " " + quoted(word);
  return text + "\n";
}

std::vector<std::string> submission(const std::vector<std::string>& sbatch, const std::string& script,
                                    const std::string& log, const std::string& working_directory) {
  std::vector<std::string> words = sbatch;
  words.insert(words.end(), {"--wait", "--parsable", "--open-mode=append", "--output=" + log,
                             "--chdir=" + working_directory, script});
  return words;
}

std::string batch_job(const std::string& file) {
  std::ifstream stream(file);
  std::string text;
  std::getline(stream, text);
  text = text.substr(0, text.find(';'));  // a cluster's name may follow
  return text.find_first_not_of("0123456789") == std::string::npos ? text : "";
}

bool batch_job_is_alive(const std::string& job) {
  if (job.empty()) return false;
  const ProgramAnswer answer =
      ask_program({"squeue", "--noheader", "--jobs=" + job, "--format=%T"}, "/", kSlurmSeconds, kMostSlurmOutput);
  return answer.exit_code == 0 && answer.output.find_first_not_of(" \n") != std::string::npos;
}

void ask_batch_job_to_stop(const std::string& job) {
  if (job.empty()) return;
  const ProgramAnswer state =
      ask_program({"squeue", "--noheader", "--jobs=" + job, "--format=%T"}, "/", kSlurmSeconds, kMostSlurmOutput);
  const bool waits = state.output.starts_with("PENDING");
  std::vector<std::string> words = {"scancel"};
  if (!waits) words.insert(words.end(), {"--batch", "--signal=USR1"});
  words.push_back(job);
  ask_program(words, "/", kSlurmSeconds, kMostSlurmOutput);
}

}  // namespace magister
