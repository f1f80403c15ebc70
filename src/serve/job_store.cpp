#include "serve/job_store.h"

#include <array>
#include <chrono>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::array kNames = {"queued", "running", "stopping", "done", "failed", "cancelled"};
constexpr const char* kColumns =
    "id, name, owner, experiment, state, created, started, ended, exit_code, pid, starts, message";

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

JobState state_of(const std::string& name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<JobState>(i);
  fail(ExitCode::kInputOutput, "a job has the state \"{}\" (a newer version wrote the database); use that version",
       printable(name, 40));
}

Job job_of(const Statement& row) {
  Job job;
  job.id = row.integer(0);
  job.name = row.text(1);
  job.owner = row.text(2);
  job.experiment = row.text(3);
  job.state = state_of(row.text(4));
  job.created = row.number(5);
  if (!row.is_null(6)) job.started = row.number(6);
  if (!row.is_null(7)) job.ended = row.number(7);
  if (!row.is_null(8)) job.exit_code = static_cast<int>(row.integer(8));
  job.pid = row.integer(9);
  job.starts = static_cast<int>(row.integer(10));
  job.message = row.text(11);
  return job;
}

std::vector<Job> jobs_of(Statement& rows) {
  std::vector<Job> jobs;
  while (rows.step()) jobs.push_back(job_of(rows));
  return jobs;
}

}  // namespace

const char* name_of(JobState state) { return kNames.at(static_cast<std::size_t>(state)); }

std::span<const JobState> all_states() {
  static constexpr std::array kAll = {JobState::kQueued, JobState::kRunning, JobState::kStopping,
                                      JobState::kDone,   JobState::kFailed,  JobState::kCancelled};
  return kAll;
}

JobStore::JobStore(const std::string& path) : database_(path) {
  database_.execute(
      "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, owner TEXT NOT NULL, "
      "experiment TEXT NOT NULL, key TEXT, state TEXT NOT NULL, created REAL NOT NULL, started REAL, ended REAL, "
      "exit_code INTEGER, pid INTEGER NOT NULL DEFAULT 0, starts INTEGER NOT NULL DEFAULT 0, message TEXT NOT NULL "
      "DEFAULT '', UNIQUE (owner, key))");
  database_.execute("CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, id)");
  database_.execute("CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, text TEXT NOT NULL)");
}

Job JobStore::add(const std::string& name, const std::string& owner, const std::string& experiment,
                  const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!key.empty()) {
    Statement earlier(database_, fmt::format("SELECT {} FROM jobs WHERE owner = ? AND key = ?", kColumns).c_str());
    if (earlier.bind(1, owner).bind(2, key).step()) return job_of(earlier);
  }
  Statement insert(database_,
                   "INSERT INTO jobs (name, owner, experiment, key, state, created) VALUES (?, ?, ?, nullif(?, ''), "
                   "'queued', ?) RETURNING id");
  insert.bind(1, name).bind(2, owner).bind(3, experiment).bind(4, key).bind(5, now());
  MAGISTER_CHECK(insert.step(), ExitCode::kInternal, "a new job has no id (SQLite returned no row); report it");
  Job job;
  job.id = insert.integer(0);
  job.name = name;
  job.owner = owner;
  job.experiment = experiment;
  job.created = now();
  insert.step();
  return job;
}

std::optional<Job> JobStore::find(std::int64_t id) const {
  const std::lock_guard lock(mutex_);
  Statement row(database_, fmt::format("SELECT {} FROM jobs WHERE id = ?", kColumns).c_str());
  return row.bind(1, id).step() ? std::optional(job_of(row)) : std::nullopt;
}

std::vector<Job> JobStore::newest(std::int64_t before, std::int64_t limit) const {
  const std::lock_guard lock(mutex_);
  Statement rows(
      database_,
      "SELECT id, name, owner, '', state, created, started, ended, exit_code, pid, starts, message FROM jobs "
      "WHERE (?1 = 0 OR id < ?1) ORDER BY id DESC LIMIT ?2");
  rows.bind(1, before).bind(2, limit);
  return jobs_of(rows);
}

std::vector<Job> JobStore::in_state(JobState state, std::int64_t limit) const {
  const std::lock_guard lock(mutex_);
  Statement rows(database_, fmt::format("SELECT {} FROM jobs WHERE state = ? ORDER BY id LIMIT ?", kColumns).c_str());
  rows.bind(1, name_of(state)).bind(2, limit);
  return jobs_of(rows);
}

std::int64_t JobStore::count(JobState state) const {
  const std::lock_guard lock(mutex_);
  Statement row(database_, "SELECT count(*) FROM jobs WHERE state = ?");
  return row.bind(1, name_of(state)).step() ? row.integer(0) : 0;
}

std::optional<std::string> JobStore::setting(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  Statement row(database_, "SELECT text FROM settings WHERE name = ?");
  return row.bind(1, name).step() ? std::optional(row.text(0)) : std::nullopt;
}

void JobStore::set_setting(const std::string& name, const std::string& text) {
  const std::lock_guard lock(mutex_);
  Statement insert(database_, "INSERT OR REPLACE INTO settings (name, text) VALUES (?, ?)");
  insert.bind(1, name).bind(2, text).step();
}

bool JobStore::change(const char* sql, std::int64_t id) {
  const std::lock_guard lock(mutex_);
  Statement update(database_, sql);
  update.bind(1, id).bind(2, now());
  update.step();
  return sqlite3_changes(database_.handle()) == 1;
}

bool JobStore::begin(std::int64_t id) {
  return change(
      "UPDATE jobs SET state = 'running', started = ?2, ended = NULL, exit_code = NULL, pid = 0, message = '', "
      "starts = starts + 1 WHERE id = ?1 AND state = 'queued'",
      id);
}

void JobStore::set_pid(std::int64_t id, std::int64_t pid) {
  const std::lock_guard lock(mutex_);
  Statement update(database_, "UPDATE jobs SET pid = ? WHERE id = ?");
  update.bind(1, pid).bind(2, id).step();
}

bool JobStore::ask_to_stop(std::int64_t id) {
  return change(
      "UPDATE jobs SET ended = CASE state WHEN 'queued' THEN ?2 ELSE ended END, state = CASE state WHEN 'queued' THEN "
      "'cancelled' ELSE 'stopping' END WHERE id = ?1 AND state IN ('queued', 'running')",
      id);
}

bool JobStore::requeue(std::int64_t id) {
  return change("UPDATE jobs SET state = 'queued' WHERE id = ?1 AND state IN ('failed', 'cancelled') AND ?2 > 0", id);
}

bool JobStore::put_back(std::int64_t id) {
  return change("UPDATE jobs SET state = 'queued' WHERE id = ?1 AND state = 'running' AND ?2 > 0", id);
}

bool JobStore::end(std::int64_t id, JobState state, std::optional<int> exit_code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  Statement update(database_,
                   "UPDATE jobs SET state = ?, ended = ?, exit_code = iif(? < 0, NULL, ?3), message = ?, pid = 0 WHERE "
                   "id = ? AND state IN ('running', 'stopping')");
  update.bind(1, name_of(state)).bind(2, now()).bind(3, static_cast<std::int64_t>(exit_code.value_or(-1)));
  update.bind(4, message).bind(5, id).step();
  return sqlite3_changes(database_.handle()) == 1;
}

}  // namespace magister
