#include "serve/database.h"

#include "magister/core/error.h"

namespace magister {

Database::Database(const std::string& path) : path_(path) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  handle_.reset(handle);
  if (code != SQLITE_OK) refuse("cannot be opened");
  sqlite3_busy_timeout(handle, 5000);
  execute("PRAGMA journal_mode = WAL");
  execute("PRAGMA synchronous = FULL");
}

void Database::execute(const char* sql) {
  if (sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) refuse("refuses a statement");
}

void Database::refuse(const char* what) const {
  fail(ExitCode::kInputOutput, "{}: {} (SQLite: {}); look at the disk, or put the file aside", printable(path_), what,
       handle_ ? sqlite3_errmsg(handle_.get()) : "no memory");
}

Statement::Statement(const Database& database, const char* sql) : database_(database) {
  sqlite3_stmt* handle = nullptr;
  if (sqlite3_prepare_v2(database.handle(), sql, -1, &handle, nullptr) != SQLITE_OK)
    database.refuse("refuses a statement");
  handle_.reset(handle);
}

Statement& Statement::bind(int place, std::string_view text) {
  if (sqlite3_bind_text64(handle_.get(), place, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8) != SQLITE_OK)
    database_.refuse("refuses a text");
  return *this;
}

Statement& Statement::bind(int place, std::int64_t number) {
  if (sqlite3_bind_int64(handle_.get(), place, number) != SQLITE_OK) database_.refuse("refuses a number");
  return *this;
}

Statement& Statement::bind(int place, double number) {
  if (sqlite3_bind_double(handle_.get(), place, number) != SQLITE_OK) database_.refuse("refuses a number");
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) database_.refuse("cannot be read or written");
  return code == SQLITE_ROW;
}

std::string Statement::text(int column) const {
  const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return bytes == nullptr ? std::string() : std::string(bytes, size);
}

}  // namespace magister
