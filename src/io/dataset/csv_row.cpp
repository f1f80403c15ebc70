// RFC 4180: a field may be in quotes, inside which a quote is doubled; elsewhere a quote is an ordinary character.
#include "io/dataset/csv_row.h"

#include <algorithm>
#include <set>

#include "io/dataset/json_text.h"
#include "io/dataset/jsonl_record.h"
#include "io/dataset/wanted_fields.h"
#include "magister/core/error.h"

namespace magister {

CsvColumns::CsvColumns(std::string_view header, char separator, const DatasetConfig& config, const std::string& where)
    : separator_(separator) {
  check_text(header, where);
  split(header, where);
  names_.assign(fields_.begin(), fields_.begin() + static_cast<std::ptrdiff_t>(num_fields_));
  std::set<std::string> seen;
  for (const std::string& name : names_) {
    MAGISTER_CHECK(!name.empty() && seen.insert(name).second, ExitCode::kData,
                   "{}: the column name \"{}\" is {} (the first row names the columns); fix the first row", where,
                   printable(name, 80), name.empty() ? "empty" : "there twice");
  }
  const auto fields = wanted_fields(config);
  wanted_.assign(names_.size(), !fields);
  for (const std::string& field : fields.value_or(std::vector<std::string>())) {
    const auto found = std::find(names_.begin(), names_.end(), field);
    if (found == names_.end()) fail_no_column(where, field, names_);
    wanted_[static_cast<std::size_t>(found - names_.begin())] = true;
  }
}

void CsvColumns::split(std::string_view row, const std::string& where) {
  if (row.ends_with('\r')) row.remove_suffix(1);
  num_fields_ = 0;
  for (std::size_t at = 0;; ++at) {
    if (fields_.size() == num_fields_) fields_.emplace_back();
    std::string& field = fields_[num_fields_++];
    field.clear();
    if (at < row.size() && row[at] == '"') {
      for (++at;; ++at) {  // the rule that cut the row has seen the closing quote
        const std::size_t quote = std::min(row.find('"', at), row.size());
        field.append(row.substr(at, quote - at));
        at = quote + 1;
        if (at >= row.size() || row[at] != '"') break;
        field += '"';
      }
      MAGISTER_CHECK(
          at >= row.size() || row[at] == separator_, ExitCode::kData,
          "{}: field {} has text after its closing quote (a quote inside a quoted field is doubled); fix this row",
          where, num_fields_);
    } else {
      const std::size_t end = std::min(row.find(separator_, at), row.size());
      field.assign(row.substr(at, end - at));
      MAGISTER_CHECK(
          field.find('\r') == std::string::npos, ExitCode::kData,
          "{}: field {} holds a carriage return outside quotes (rows end in LF or CRLF); convert the file's line ends",
          where, num_fields_);
      at = end;
    }
    if (at >= row.size()) return;
  }
}

std::string_view CsvColumns::as_json(std::string_view row, const std::string& where) {
  check_text(row, where);
  split(row, where);
  MAGISTER_CHECK(num_fields_ == names_.size(), ExitCode::kData,
                 "{}: the row has {} fields and the first row {} (the columns cannot be matched); fix this row", where,
                 num_fields_, names_.size());
  json_ = "{";
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!wanted_[i]) continue;
    if (json_.size() > 1) json_ += ',';
    append_json_text(json_, names_[i]);
    json_ += ':';
    append_json_text(json_, fields_[i]);
  }
  return json_ += '}';
}

}  // namespace magister
