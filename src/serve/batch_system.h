// Slurm as the starter of jobs: `sbatch --wait` takes the place of the launcher, which it starts on the nodes.
#pragma once

#include <string>
#include <vector>

namespace magister {

// The script of a job: it replaces itself by these words, so that a signal to the script reaches the launcher. Each
// word is quoted, and none is read by the shell.
std::string batch_script(const std::vector<std::string>& words);

// The words that submit the script and wait for its end. sbatch: the configured program and its options. They write
// the number of Slurm's job to standard output and end with the exit code of the script.
std::vector<std::string> submission(const std::vector<std::string>& sbatch, const std::string& script,
                                    const std::string& log, const std::string& working_directory);

// The number of Slurm's job in the file that the submission wrote; empty: it has not been submitted yet. Local.
std::string batch_job(const std::string& file);
// True if Slurm knows the job as waiting or running; false if not, or if it does not answer. Local, asks squeue.
bool batch_job_is_alive(const std::string& job);
// Asks the job to stop cleanly: SIGUSR1 to its script, which the launcher passes on to the ranks; a job that waits is
// taken out of the queue. Local, asks scancel.
void ask_batch_job_to_stop(const std::string& job);

}  // namespace magister
