// tokenize: lines of text <-> lines of JSON arrays of ids, one line at a time, so that it works in a pipe.
#include <charconv>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/runtime/tokenizer_files.h"

namespace magister {

namespace {

constexpr std::size_t kMaxLineBytes = 256u << 20;  // as for records of a data set

// Reads the next line without its end; false at the end of the input.
bool read_line(std::string& line, std::uint64_t number) {
  line.clear();
  for (int c; (c = std::getc(stdin)) != EOF;) {
    if (c == '\n') return true;
    if (line.size() >= kMaxLineBytes) {
      fail(ExitCode::kData,
           "standard input:{}: a line of more than {} bytes (it would exhaust the memory); break it up", number,
           kMaxLineBytes);
    }
    line += static_cast<char>(c);
  }
  if (std::ferror(stdin) != 0)
    fail(ExitCode::kInputOutput, "standard input:{}: cannot be read (the text is cut off); try again", number);
  return !line.empty();
}

// Ids without a token are accepted, because a model has more rows than its vocabulary has tokens, and generates their
// ids now and then.
std::vector<TokenId> parse_ids(const std::string& line, std::uint64_t number) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_array()) {
    fail(ExitCode::kData,
         "standard input:{}: not a JSON array of token ids (nothing can be decoded); write for example "
         "[1, 2, 3]",
         number);
  }
  std::vector<TokenId> ids;
  for (const nlohmann::json& entry : json) {
    constexpr std::int64_t kHighest = std::numeric_limits<TokenId>::max();
    const bool fits = entry.is_number_unsigned() && entry.get<std::uint64_t>() <= std::uint64_t{kHighest};
    if (!fits) {
      fail(ExitCode::kData, "standard input:{}: {} is not a token id (ids go from 0 to {}); fix this line", number,
           printable(entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 40), kHighest);
    }
    ids.push_back(static_cast<TokenId>(entry.get<std::int64_t>()));
  }
  return ids;
}

std::string json_array(const std::vector<TokenId>& ids) {
  std::string out = "[";
  char digits[16];
  for (const TokenId id : ids) {
    if (out.size() > 1) out += ", ";
    out.append(digits, std::to_chars(digits, digits + sizeof digits, id).ptr);
  }
  return out + "]\n";
}

}  // namespace

ExitCode tokenize_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const Tokenizer tokenizer = load_tokenizer(call.line.positional("MODEL"));
    const bool special = call.line.has("--special");
    const EncodeOptions options{special, true};
    std::string line;
    for (std::uint64_t number = 1; read_line(line, number); ++number) {
      if (call.line.has("--decode")) {
        say(tokenizer.decode(parse_ids(line, number), !special) + "\n");
        continue;
      }
      std::vector<TokenId> ids;
      try {
        tokenizer.encode(line, options, ids);
      } catch (const Error& error) {
        fail(error.code(), "standard input:{}: {}", number, error.what());
      }
      say(json_array(ids));
    }
    return ExitCode::kDone;
  });
}

}  // namespace magister
