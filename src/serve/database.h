// A SQLite database and its statements, each with one owner. Every fault of SQLite is Error(kInputOutput) that names
// the file.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace magister {

class Database {
 public:
  // Opens or creates the file. A commit is on the disk before it returns (synchronous = FULL, write-ahead log).
  explicit Database(const std::string& path);
  void execute(const char* sql);
  sqlite3* handle() const { return handle_.get(); }
  const std::string& path() const { return path_; }
  [[noreturn]] void refuse(const char* what) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

class Statement {
 public:
  Statement(const Database& database, const char* sql);
  // The place of a parameter counts from 1.
  Statement& bind(int place, std::string_view text);
  Statement& bind(int place, std::int64_t number);
  Statement& bind(int place, double number);
  // True: there is a row, whose columns count from 0.
  bool step();
  std::string text(int column) const;
  std::int64_t integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }
  double number(int column) const { return sqlite3_column_double(handle_.get(), column); }
  bool is_null(int column) const { return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL; }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  const Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

}  // namespace magister
