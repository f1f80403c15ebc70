// The service: an HTTP interface to a queue of experiments. A job is an experiment that the service starts as
// `mpirun ... magister run FILE.yaml`, one process per job, and never through a shell. Jobs are in a SQLite database:
// an accepted job survives the end of the service, whatever ended it, and is started once.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace magister {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                    // 0: the system chooses one
  std::string root;                   // folder of the jobs, the database, and everything that experiments may name
  std::vector<std::string> folders;   // further folders that experiments may name
  std::string tokens_file;            // hashes of bearer tokens (access.h); empty: no token is asked for
  std::string certificate, key;       // PEM files of TLS; both empty: plain HTTP
  std::vector<std::string> launcher;  // words before the program: {"mpirun", "-np", "2"}; empty: the program alone
  std::vector<std::string> sbatch;    // {"sbatch", "--partition=gpu"}: Slurm starts the jobs; empty: this process does
  std::string program;                // path of this program
  int jobs_at_once = 1;
  int requests_a_minute = 6000;  // of one token
};

// Serves until should_stop() returns true; it is asked several times a second. Jobs that run then go on without the
// service, and the next start finds them. ready(port) is called once the port is open. Throws Error(kConfig) for
// options that contradict each other, Error(kInputOutput) if the port or a file cannot be opened. Local, one process.
void serve(const ServeOptions& options, const std::function<bool()>& should_stop,
           const std::function<void(int port)>& ready);

// Appends a new token to `tokens_file` and returns it; the file holds only its hash. role: "read" or "submit". Throws
// Error(kConfig) for another role or a name that is there already. Local.
std::string add_token(const std::string& tokens_file, const std::string& name, const std::string& role);

}  // namespace magister
